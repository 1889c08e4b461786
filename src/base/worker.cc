#include "base/worker.h"

#include <csignal>

namespace gshm::core {

Worker::Worker(unsigned threads) {
    // Signals are handled by the main thread.
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    for (int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, own);  // synchronous faults cannot be blocked
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Worker::~Worker() {
    {
        MutexLock lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Worker::submit(Task task) {
    {
        MutexLock lock(mutex_);
        queue_.push_back(std::move(task));
    }
    wake_.notify_one();
}

void Worker::run() {
    MutexLock lock(mutex_);
    for (;;) {
        while (queue_.empty() && !ending_) lock.wait(wake_);
        if (queue_.empty()) return;
        Task task = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        task();
        task = nullptr;  // destroys the captures outside of the lock
        lock.lock();
    }
}

}  // namespace gshm::core

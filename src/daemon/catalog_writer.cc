#include "daemon/catalog_writer.h"

#include <pthread.h>
#include <sys/resource.h>

namespace gshm::core {
namespace {

constexpr std::chrono::milliseconds kGather(5);   // the time in which rows of one transaction are collected
constexpr std::chrono::milliseconds kRetry(100);  // after a failure

}  // namespace

CatalogWriter::CatalogWriter(std::function<Status()> drain) : drain_(std::move(drain)), thread_([this] { run(); }) {}

CatalogWriter::~CatalogWriter() {
    {
        MutexLock lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void CatalogWriter::wake() {
    if (awake_.load(std::memory_order_relaxed) || awake_.exchange(true)) return;
    // The thread checks the flag under the lock before it sleeps.
    { MutexLock lock(mutex_); }
    changed_.notify_all();
}

bool CatalogWriter::sleep_until_woken() {
    MutexLock lock(mutex_);
    while (!ending_ && !awake_.load()) lock.wait(changed_);
    return !ending_;
}

bool CatalogWriter::sleep(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    MutexLock lock(mutex_);
    while (!ending_ && std::chrono::steady_clock::now() < end) lock.wait_until(changed_, end);
    return !ending_;
}

void CatalogWriter::run() {
    pthread_setname_np(pthread_self(), "catalog");
    // Nobody waits for it, and its transactions take milliseconds.
    constexpr int kNice = 5;
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNice);
    while (sleep_until_woken() && sleep(kGather)) {
        // Cleared before the rows are read, so that rows added later wake the thread again.
        awake_.store(false);
        while (!drain_()) {
            if (!sleep(kRetry)) return;
        }
    }
}

}  // namespace gshm::core

#include "cli/support/job.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace gshm::cli {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
// Longer than the library's own timeout.
constexpr auto kPatience = std::chrono::seconds(3);

}  // namespace

Job::Job(Context& context, const std::string& what, uint64_t total_bytes, Clearing clearing)
    : context_(context), clearing_(clearing), progress_(what, total_bytes, !context.json()) {}

void Job::run(unsigned threads, const std::function<void(unsigned)>& body) {
    std::vector<std::thread> crew;
    running_ = threads;
    for (unsigned i = 0; i < threads; ++i) {
        crew.emplace_back([this, i, &body] {
            std::exception_ptr thrown;
            try {
                body(i);
            } catch (...) {
                thrown = std::current_exception();
            }
            const std::lock_guard lock(mutex_);
            if (thrown && !thrown_) thrown_ = thrown;
            if (thrown) stop_ = true;
            --running_;
            ended_.notify_one();
        });
    }
    std::optional<Interrupted> interrupted;
    std::chrono::steady_clock::time_point interrupted_at;
    for (std::unique_lock lock(mutex_); running_ > 0;) {
        ended_.wait_for(lock, kTick);
        lock.unlock();
        try {
            interrupt_.throw_if_interrupted();
        } catch (const Interrupted& signal) {
            if (!interrupted) interrupted_at = std::chrono::steady_clock::now();
            interrupted = signal;
            stop_ = true;
        }
        progress_.update(done_bytes_);
        tell();
        const bool may_end = interrupted && clearing_ == Clearing::by_ending;
        if (may_end && std::chrono::steady_clock::now() - interrupted_at > kPatience) {
            progress_.clear();
            end_by(*interrupted);
        }
        lock.lock();
    }
    for (auto& thread : crew) thread.join();
    tell();
    if (thrown_) std::rethrow_exception(thrown_);
    if (interrupted) throw *interrupted;
    interrupt_.throw_if_interrupted();  // a signal after the last check has also stopped the threads
}

void Job::fail(const Failure& failure) {
    if (failure.exit_code() == ExitCode::no_daemon) throw failure;
    const std::lock_guard lock(mutex_);
    if (exit_code_ == 0) exit_code_ = static_cast<int>(failure.exit_code());
    to_tell_.push_back([this, failure] { context_.report(failure); });
}

void Job::warn(std::string message) {
    const std::lock_guard lock(mutex_);
    to_tell_.push_back([this, message = std::move(message)] { context_.warn(message); });
}

void Job::tell() {
    std::vector<std::function<void()>> now;
    {
        const std::lock_guard lock(mutex_);
        now.swap(to_tell_);
    }
    if (now.empty()) return;
    progress_.clear();
    for (const auto& one : now) one();
}

unsigned thread_count(unsigned asked) {
    if (asked != 0) return asked;
    return std::clamp(std::thread::hardware_concurrency(), 4u, 16u);
}

}  // namespace gshm::cli

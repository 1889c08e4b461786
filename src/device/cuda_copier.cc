#include "device/cuda_copier.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "device/refusing_copier.h"

namespace gshm::core {
namespace {

// Copies up to this size are small: the GPU takes a few microseconds for one.
constexpr size_t kSmallBytes = 64 << 10;
constexpr size_t kTogether = 16;  // small copies with one event
constexpr std::chrono::microseconds kShortWait{100};

enum class Kind { in, out, fill };

struct Job {
    Kind kind;
    uint64_t address;
    std::byte* memory;
    size_t bytes;
    uint8_t value;
    Copier::Done done;
};

}  // namespace

// One stream with two threads. The first queues copies on the stream as they arrive, so that the stream never idles and
// callers wait neither for the driver's locks nor for copies of unpinned memory. The second sleeps until the oldest
// copy has ended. A single thread would leave the stream empty while it sleeps.
//
// Small copies that arrive together share an event, and the first thread waits for them itself, without sleeping: they
// take a few microseconds, and waking the second thread takes longer. Meanwhile the next ones arrive.
class CudaCopier::Lane {
public:
    static Result<std::unique_ptr<Lane>> create(const cuda::Driver& driver, cuda::CUcontext context) {
        cuda::ScopedContext current(driver, context);
        TRY(current.status());
        cuda::CUstream stream = nullptr;
        // Not ordered after work on the legacy stream: no kernel is waited for.
        TRY(driver.check("cuStreamCreate", driver.stream_create(&stream, cuda::kStreamNonBlocking)));
        return std::unique_ptr<Lane>(new Lane(driver, context, stream));
    }
    ~Lane() {
        {
            MutexLock lock(mutex_);
            ending_ = true;
        }
        job_came_.notify_one();
        issuer_.join();
        {
            MutexLock lock(mutex_);
            issuer_ended_ = true;
        }
        copy_began_.notify_one();
        waiter_.join();
        cuda::ScopedContext current(driver_, context_);
        for (cuda::CUevent event : events_) driver_.event_destroy(event);
        driver_.stream_destroy(stream_);
    }

    void put(Job job) EXCLUDES(mutex_) {
        {
            MutexLock lock(mutex_);
            jobs_.push_back(std::move(job));
        }
        job_came_.notify_one();
    }

private:
    struct Copies {
        cuda::CUevent event = nullptr;
        std::vector<Done> dones = {};
    };

    Lane(const cuda::Driver& driver, cuda::CUcontext context, cuda::CUstream stream)
        : driver_(driver), context_(context), stream_(stream), issuer_([this] { issue_all(); }), waiter_([this] {
              wait_for_all();
          }) {}

    static bool is_small(const Job& job) { return job.bytes <= kSmallBytes && job.kind != Kind::fill; }

    void issue_all() EXCLUDES(mutex_) {
        cuda::ScopedContext current(driver_, context_);
        std::deque<Job> jobs;
        while (take_jobs(jobs)) {
            while (!jobs.empty()) {
                const bool small = is_small(jobs.front());
                Copies copies = begin(current.status(), jobs);
                if (copies.dones.empty()) continue;
                if (small && ends_soon(copies.event)) {
                    Status ended = driver_.check("cuEventQuery", driver_.event_query(copies.event));
                    give_event(copies.event);
                    for (Done& done : copies.dones) done(Status(ended));
                    continue;
                }
                MutexLock lock(mutex_);
                copies_.push_back(std::move(copies));
                copy_began_.notify_one();
            }
        }
    }

    // False: there will be no more.
    bool take_jobs(std::deque<Job>& jobs) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        while (jobs_.empty() && !ending_) lock.wait(job_came_);
        jobs.swap(jobs_);
        return !jobs.empty();
    }

    // Puts the first job on the stream, and those that share its event. Jobs that fail are done.
    Copies begin(const Status& context, std::deque<Job>& jobs) EXCLUDES(mutex_) {
        Copies copies;
        auto event = context ? take_event() : Result<cuda::CUevent>(std::unexpected(context.error()));
        const bool small = is_small(jobs.front());
        do {
            Job job = std::move(jobs.front());
            jobs.pop_front();
            Status begun = event ? put_on_stream(job) : Status(std::unexpected(event.error()));
            if (begun) copies.dones.push_back(std::move(job.done));
            else fail_after_stream(job, std::move(begun.error()));
        } while (small && event && !jobs.empty() && is_small(jobs.front()) && copies.dones.size() < kTogether);
        if (!event) return copies;
        copies.event = *event;
        auto recorded = driver_.check("cuEventRecord", driver_.event_record(copies.event, stream_));
        if (recorded && !copies.dones.empty()) return copies;
        // The copies may run without an event; their memory can be returned to the caller only when they have ended.
        driver_.stream_synchronize(stream_);
        give_event(copies.event);
        for (Done& done : copies.dones) done(Status(recorded));
        return {};
    }

    // The copy may have begun.
    void fail_after_stream(Job& job, Error error) {
        driver_.stream_synchronize(stream_);
        job.done(std::unexpected(std::move(error)));
    }

    // Waits for small copies, unless others are ahead of them.
    bool ends_soon(cuda::CUevent event) EXCLUDES(mutex_) {
        if (oldest() != nullptr) return false;
        const auto deadline = std::chrono::steady_clock::now() + kShortWait;
        while (driver_.event_query(event) == cuda::kErrorNotReady) {
            if (std::chrono::steady_clock::now() > deadline) return false;
        }
        return true;
    }

    Status put_on_stream(const Job& job) {
        switch (job.kind) {
            case Kind::in:
                return driver_.check("cuMemcpyHtoDAsync",
                                     driver_.memcpy_htod_async(job.address, job.memory, job.bytes, stream_));
            case Kind::out:
                return driver_.check("cuMemcpyDtoHAsync",
                                     driver_.memcpy_dtoh_async(job.memory, job.address, job.bytes, stream_));
            case Kind::fill: break;
        }
        return driver_.check("cuMemsetD8Async", driver_.memset_d8_async(job.address, job.value, job.bytes, stream_));
    }

    void wait_for_all() EXCLUDES(mutex_) {
        cuda::ScopedContext current(driver_, context_);
        for (;;) {
            {
                MutexLock lock(mutex_);
                while (copies_.empty() && !issuer_ended_) lock.wait(copy_began_);
                if (copies_.empty()) return;
            }
            // Only this thread pops from the front, and the elements of a deque do not move.
            cuda::CUevent event = oldest();
            auto ended = driver_.event_synchronize(event);
            // One sleep covers all copies that have ended meanwhile.
            do {
                finish_oldest(driver_.check("cuEventSynchronize", ended));
                event = oldest();
                ended = event == nullptr ? cuda::kErrorNotReady : driver_.event_query(event);
            } while (ended != cuda::kErrorNotReady);
        }
    }

    cuda::CUevent oldest() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return copies_.empty() ? nullptr : copies_.front().event;
    }
    void finish_oldest(const Status& status) EXCLUDES(mutex_) {
        std::vector<Done> dones;
        {
            MutexLock lock(mutex_);
            dones = std::move(copies_.front().dones);
            events_.push_back(copies_.front().event);
            copies_.pop_front();
        }
        for (Done& done : dones) done(Status(status));
    }

    Result<cuda::CUevent> take_event() EXCLUDES(mutex_) {
        {
            MutexLock lock(mutex_);
            if (!events_.empty()) {
                cuda::CUevent event = events_.back();
                events_.pop_back();
                return event;
            }
        }
        cuda::CUevent event = nullptr;
        TRY(driver_.check("cuEventCreate",
                          driver_.event_create(&event, cuda::kEventBlockingSync | cuda::kEventDisableTiming)));
        return event;
    }
    void give_event(cuda::CUevent event) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        events_.push_back(event);
    }

    const cuda::Driver& driver_;
    cuda::CUcontext context_;
    cuda::CUstream stream_;
    Mutex mutex_;
    std::condition_variable job_came_;
    std::condition_variable copy_began_;
    std::deque<Job> jobs_ GUARDED_BY(mutex_);               // not yet on the stream
    std::deque<Copies> copies_ GUARDED_BY(mutex_);          // on the stream, in its order
    std::vector<cuda::CUevent> events_ GUARDED_BY(mutex_);  // unused
    bool ending_ GUARDED_BY(mutex_) = false;
    bool issuer_ended_ GUARDED_BY(mutex_) = false;
    std::thread issuer_;
    std::thread waiter_;
};

CudaCopier::CudaCopier(const cuda::Driver& driver, cuda::CUcontext context, std::unique_ptr<Lane> in,
                       std::unique_ptr<Lane> out)
    : driver_(driver), context_(context), in_(std::move(in)), out_(std::move(out)) {}
CudaCopier::~CudaCopier() = default;

Result<std::unique_ptr<CudaCopier>> CudaCopier::create(const cuda::Driver& driver, cuda::CUcontext context) {
    auto in = TRY(Lane::create(driver, context));
    auto out = TRY(Lane::create(driver, context));
    return std::unique_ptr<CudaCopier>(new CudaCopier(driver, context, std::move(in), std::move(out)));
}

void CudaCopier::copy_in(uint64_t address, const std::byte* source, size_t bytes, Done done) {
    in_->put({Kind::in, address, const_cast<std::byte*>(source), bytes, 0, std::move(done)});
}

void CudaCopier::copy_out(std::byte* destination, uint64_t address, size_t bytes, Done done) {
    out_->put({Kind::out, address, destination, bytes, 0, std::move(done)});
}

void CudaCopier::fill(uint64_t address, size_t bytes, uint8_t value, Done done) {
    in_->put({Kind::fill, address, nullptr, bytes, value, std::move(done)});
}

bool CudaCopier::with_context(const std::function<void()>& call) {
    cuda::ScopedContext current(driver_, context_);
    if (!current.status()) return false;
    call();
    return true;
}

Copier* LazyCopier::get(const cuda::Driver& driver, cuda::CUcontext context) {
    std::lock_guard lock(mutex_);
    if (copier_ != nullptr) return copier_.get();
    auto made = closed_
                    ? Result<std::unique_ptr<CudaCopier>>(fail(ENODEV, "the GPU of this memory is no longer in use"))
                    : CudaCopier::create(driver, context);
    if (made) {
        copier_ = std::move(*made);
        return copier_.get();
    }
    // Kept, since a caller may hold it; the next call tries again.
    if (refusal_ == nullptr) refusal_ = std::make_unique<RefusingCopier>(std::move(made.error()));
    return refusal_.get();
}

void LazyCopier::close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    copier_.reset();
}

}  // namespace gshm::core

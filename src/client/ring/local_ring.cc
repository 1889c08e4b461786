#include "client/ring/local_ring.h"

#include <algorithm>
#include <sys/eventfd.h>

#include "base/futex.h"
#include "client/fork.h"

namespace gshm::core::client {
namespace {

// Less than gshmd has, since every process with a local ring has its own.
constexpr size_t kStagingBytes = size_t{64} << 20;

// Engines live until the process ends, since their threads may be in a driver call at exit.
Result<io::Engine*> process_engine(LocalRing::Kind kind, Device& device) {
    static Mutex* mutex = new Mutex;
    static io::Engine* engines[LocalRing::kKinds] = {};
    static uint64_t generation = fork_count();
    MutexLock lock(*mutex);
    if (std::exchange(generation, fork_count()) != fork_count()) {
        std::ranges::fill(engines, nullptr);  // a forked child does not have their threads
    }
    io::Engine*& engine = engines[kind];
    if (engine == nullptr) {
        std::shared_ptr<io::Staging> staging;
        if (kind != LocalRing::kOrdinary) staging = TRY(io::Staging::create(device, kStagingBytes));
        engine = TRY(io::Engine::create(std::move(staging), {})).release();
    }
    return engine;
}

}  // namespace

struct LocalRing::Job final : io::Transfer {
    explicit Job(LocalRing& of) : ring(of) {}
    void done(Result<uint64_t> result) override { ring.end(std::unique_ptr<Job>(this), result); }

    LocalRing& ring;
    uint32_t token = 0;
    std::shared_ptr<io::File> held_file;
};

Result<std::unique_ptr<LocalRing>> LocalRing::create(Kind kind, Device& device, std::atomic<uint32_t>& word) {
    auto* engine = TRY(process_engine(kind, device));
    auto doorbell = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!doorbell) return fail_errno("eventfd");
    std::unique_ptr<LocalRing> ring(new LocalRing(*engine, std::move(doorbell), word));
    TRY(engine->add(*ring));
    return ring;
}

LocalRing::~LocalRing() {
    engine_.remove(*this);
}

void LocalRing::push(Request request) {
    bool asleep = false;
    {
        MutexLock lock(mutex_);
        waiting_.push_back(std::move(request));
        asleep = asleep_;
    }
    if (asleep) eventfd_write(doorbell_.get(), 1);
}

bool LocalRing::poll() {
    bool started = false;
    for (;;) {
        auto job = std::make_unique<Job>(*this);
        {
            MutexLock lock(mutex_);
            if (waiting_.empty()) return started;
            Request& request = waiting_.front();
            job->token = request.token;
            job->direction = request.direction;
            job->held_file = std::move(request.file);
            job->file_offset = request.file_offset;
            job->address = request.address;
            job->copier = request.copier;
            job->bytes = request.bytes;
            waiting_.pop_front();
        }
        job->file = job->held_file.get();
        engine_.start(*job.release());
        started = true;
    }
}

void LocalRing::sleep(bool asleep) {
    MutexLock lock(mutex_);
    asleep_ = asleep;
}

void LocalRing::end(std::unique_ptr<Job> job, const Result<uint64_t>& bytes) {
    const int64_t result = bytes ? static_cast<int64_t>(*bytes) : -bytes.error().code;
    MutexLock lock(mutex_);
    completions_.push_back({result, job->token, job->path});
    // With the lock held: a thread that takes this completion may destroy the ring, and then waits for the lock.
    completed_.fetch_add(1, std::memory_order_release);
    gshm::core::wake(completed_);
}

bool LocalRing::take(ring::Completion* ret_completion) {
    MutexLock lock(mutex_);
    if (completions_.empty()) return false;
    *ret_completion = completions_.front();
    completions_.pop_front();
    return true;
}

}  // namespace gshm::core::client

#include "fuse/mount.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

namespace gshm::fuse {
namespace {

// One that waits for a GPU must not keep a stat waiting. No more than that: requests go round among them, and each has
// its own buffers to be fetched into the processor's caches.
size_t thread_count() {
    return std::clamp<size_t>(std::thread::hardware_concurrency(), 3, 16);
}

// A thread's memory: a request with the bytes to be written, and bytes that were read. Pages of its own, so that
// they can be pinned for a GPU.
class Buffers {
public:
    static constexpr size_t kRequestBytes = FileSystem::kMostBytes + 8192;
    static constexpr size_t kScratchBytes = FileSystem::kMostBytes;

    explicit Buffers(Backend& backend) : backend_(backend) {
        void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        memory_ = {static_cast<std::byte*>(memory), kBytes};
        // Once for all GPUs.
        auto count = static_cast<DeviceIndex>(backend.device_count());
        for (DeviceIndex i = 0; i < count && !pinned_by_; ++i) {
            if (backend.device(i).info().uuid.empty()) continue;
            if (auto pinned = backend.device(i).register_host_memory(memory_)) pinned_by_ = &backend.device(i);
            else log_warning("copies are slower: {}", pinned.error().message);
        }
    }
    ~Buffers() {
        if (pinned_by_ != nullptr) pinned_by_->unregister_host_memory(memory_);
        munmap(memory_.data(), memory_.size());
    }
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

    std::span<std::byte> request() const { return memory_.first(kRequestBytes); }
    std::span<std::byte> scratch() const { return memory_.subspan(kRequestBytes); }

private:
    static constexpr size_t kBytes = kRequestBytes + kScratchBytes;

    Backend& backend_;
    std::span<std::byte> memory_;
    Device* pinned_by_ = nullptr;
};

void on_wake(int) {}

// Whoever reads or writes a file in large pieces comes again at once, and to wake a thread on another core takes as
// long as the bytes do.
constexpr std::chrono::microseconds kAwake{100};

bool moves_much(const Call& call) {
    constexpr size_t kMuch = 128 << 10;
    if (call.header().opcode == FUSE_WRITE) return call.header().len >= kMuch;
    if (call.header().opcode != FUSE_READ) return false;
    return call.rest().size() >= sizeof(fuse_read_in) &&
           reinterpret_cast<const fuse_read_in*>(call.rest().data())->size >= kMuch;
}

}  // namespace

Mount::Mount(Backend& backend, MountPoint point, UniqueFd fd, std::function<void()> on_end)
    : backend_(backend),
      point_(std::move(point)),
      connection_(std::move(fd)),
      files_(backend, connection_),
      on_end_(std::move(on_end)) {}

Result<std::unique_ptr<Mount>> Mount::create(Backend& backend, const std::string& path, std::function<void()> on_end) {
    UniqueFd fd;
    auto point = TRY(MountPoint::create(path, &fd));
    std::unique_ptr<Mount> mount(new Mount(backend, std::move(point), std::move(fd), std::move(on_end)));
    TRY(mount->start());
    return mount;
}

Status Mount::start() {
    // Wakes a thread out of its read when it shall end; without SA_RESTART.
    struct sigaction wake = {};
    wake.sa_handler = on_wake;
    sigaction(SIGUSR1, &wake, nullptr);

    std::vector<std::byte> buffer(Buffers::kRequestBytes);
    size_t bytes = next_request(buffer, std::chrono::microseconds{0});
    if (bytes == 0) return gshm::fail(EIO, "the kernel sent nothing through the mount at {}", path());
    {
        Call first(connection_, std::span(buffer).first(bytes), {});
        TRY(files_.start(first));
    }
    running_ = thread_count();
    for (size_t i = 0; i < thread_count(); ++i) threads_.emplace_back([this, i] { serve(i); });
    struct stat root = {};
    if (stat(path().c_str(), &root) != 0) return fail_errno("the mount does not answer");
    log_info("mounted at {}{}", path(), has_passthrough() ? ", host files by passthrough" : "");
    return {};
}

Mount::~Mount() {
    if (running_ > 0) connection_.finish_notices();  // they may wait for answers of ours
    stopping_ = true;
    if (auto done = unmount(false); !done) {
        if (auto detached = unmount(true); !detached) log_error("{}", detached.error().message);
    }
    // A signal that comes just before the read would be lost, so until all have gone.
    while (running_ > 0) {
        for (auto& thread : threads_) pthread_kill(thread.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (auto& thread : threads_) thread.join();
    files_.end();
}

size_t Mount::next_request(std::span<std::byte> into, std::chrono::microseconds awake) const {
    pollfd readable{connection_.fd(), POLLIN, 0};
    if (awake.count() > 0) {
        const auto sleep_at = std::chrono::steady_clock::now() + awake;
        while (poll(&readable, 1, 0) == 0 && std::chrono::steady_clock::now() < sleep_at) {
            sched_yield();  // whoever is to send the next one may need this core
        }
    }
    for (;;) {
        ssize_t got = read(connection_.fd(), into.data(), into.size());
        if (got >= static_cast<ssize_t>(sizeof(fuse_in_header))) return static_cast<size_t>(got);
        if (stopping_) return 0;
        // ENOENT: the request was interrupted before it was read.
        if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
        if (got < 0 && errno != ENODEV) log_error("reading from the mount: {}", strerror(errno));
        return 0;
    }
}

void Mount::serve(size_t index) {
    sigset_t signals;
    sigfillset(&signals);
    // Those that a thread causes itself cannot wait: guarded_copy() lives by one of them.
    for (int own : {SIGUSR1, SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&signals, own);
    pthread_sigmask(SIG_SETMASK, &signals, nullptr);
    pthread_setname_np(pthread_self(), fmt::format("mount-{}", index).c_str());
    {
        Buffers buffers(backend_);
        std::chrono::microseconds awake{0};
        while (size_t bytes = next_request(buffers.request(), awake)) {
            Call call(connection_, buffers.request().first(bytes), buffers.scratch());
            awake = moves_much(call) ? kAwake : std::chrono::microseconds{0};
            files_.handle(call);
        }
    }
    bool last = running_.fetch_sub(1) == 1;
    if (!last || stopping_) return;
    log_info("{} was unmounted", path());
    on_end_();
}

}  // namespace gshm::fuse

#include "fuse/mount.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <future>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <unordered_map>

#include "base/log.h"

namespace gshm::core::fuse {
namespace {

// Several, so that a request that waits for a GPU does not delay a stat. Not more, since requests alternate between the
// threads, and the buffers of each must be loaded into the processor's caches.
size_t thread_count() {
    return std::clamp<size_t>(std::thread::hardware_concurrency(), 3, 16);
}

// The buffers of a thread: a request with the bytes to write, and bytes that were read.
constexpr size_t kRequestBytes = FileSystem::kMostBytes + 8192;
constexpr size_t kScratchBytes = FileSystem::kMostBytes;

void on_wake(int) {}

// A process that reads or writes a file in large pieces sends the next request at once, and waking a thread on another
// core takes as long as the copy of a piece.
constexpr std::chrono::microseconds kAwake{100};

bool moves_much(const Call& call) {
    constexpr size_t kMuch = 128 << 10;
    if (call.header().opcode == FUSE_WRITE) return call.header().len >= kMuch;
    if (call.header().opcode != FUSE_READ) return false;
    return call.rest().size() >= sizeof(fuse_read_in) &&
           reinterpret_cast<const fuse_read_in*>(call.rest().data())->size >= kMuch;
}

}  // namespace

Mount::Mount(Backend& backend, std::string path, std::string device, UniqueFd fd, std::function<void()> on_end)
    : backend_(backend),
      path_(std::move(path)),
      device_(std::move(device)),
      connection_(std::move(fd)),
      files_(backend, connection_),
      on_end_(std::move(on_end)) {
    files_.set_waiting([this](bool begins) { return set_waiting(begins); });
}

Result<std::unique_ptr<Mount>> Mount::create(Backend& backend, const std::string& path, const MountOptions& options,
                                             std::function<void()> on_end) {
    UniqueFd fd;
    const bool plain = !options.read_only && options.subdirectory.empty();
    if (geteuid() != 0 || plain) {
        auto point = TRY(MountPoint::create(path, options, &fd));
        std::unique_ptr<Mount> mount(new Mount(backend, path, point.device(), std::move(fd), std::move(on_end)));
        TRY(mount->start());
        return mount;
    }
    // Answers are needed to find the subdirectory, and the file system itself must not be read-only.
    auto detached = TRY(MountPoint::create_detached(&fd));
    std::unique_ptr<Mount> mount(new Mount(backend, path, {}, std::move(fd), std::move(on_end)));
    TRY(mount->start());
    struct stat root = {};
    if (fstat(detached.get(), &root) != 0) return fail_errno("the mount does not answer");
    mount->device_ = fmt::format("{}:{}", major(root.st_dev), minor(root.st_dev));
    TRY(mount->add(path, options));
    return mount;
}

Status Mount::add(const std::string& path, const MountOptions& options) {
    TRY(MountPoint::add(path, options, connection_.fd()));
    log_info("mounted at {}{}{}", path, options.read_only ? ", read-only" : "",
             options.subdirectory.empty() ? "" : ", with the root " + options.subdirectory);
    return {};
}

Status Mount::unmount(const std::string& path, bool lazily) {
    bool found = false;
    Status status;
    for (const auto& point : points()) {
        if (!path.empty() && point.path() != path) continue;
        found = true;
        if (auto done = point.unmount(lazily); !done) status = done;
    }
    if (!found) return gshm::core::fail(EINVAL, "nothing is mounted{}", path.empty() ? "" : " by gshmd at " + path);
    return status;
}

Result<std::unique_ptr<Mount>> Mount::resume(Backend& backend, const std::string& path, const std::string& device,
                                             UniqueFd fd, FileSystem::Features features,
                                             std::unordered_map<uint64_t, NodeId> done, std::function<void()> on_end) {
    const std::string known = device.empty() ? MountPoint::find(path).device() : device;
    std::unique_ptr<Mount> mount(new Mount(backend, path, known, std::move(fd), std::move(on_end)));
    prepare_signal();
    mount->files_.resume(features, std::move(done));
    mount->connection_.resend();
    // Notices of the earlier daemon may be lost.
    mount->files_.forget_all_remembered();
    mount->running_ = 1;
    mount->start_threads(thread_count());
    mount->leave();
    log_info("the mount at {} continues{}", path, features.passthrough ? ", host files by passthrough" : "");
    return mount;
}

bool Mount::has_ended(int fd) {
    pollfd state{fd, POLLIN, 0};
    return poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

void Mount::prepare_signal() {
    // Interrupts the read of a thread that is to end, hence without SA_RESTART.
    struct sigaction wake = {};
    wake.sa_handler = on_wake;
    sigaction(SIGUSR1, &wake, nullptr);
}

void Mount::start_threads(size_t count) {
    for (size_t i = 0; i < count; ++i) start_thread(fmt::format("mount-{}", i), [this] { serve(); });
}

Status Mount::start() {
    prepare_signal();
    std::vector<std::byte> buffer(kRequestBytes);
    size_t bytes = next_request(buffer, std::chrono::microseconds{0});
    if (bytes == 0) return gshm::core::fail(EIO, "the kernel sent nothing through the mount at {}", path());
    {
        Call first(connection_, std::span(buffer).first(bytes), {});
        TRY(files_.start(first, [this] { return make_uring(); }));
    }
    running_ = 1;  // this thread, until all others are counted
    bool over_uring = start_uring();
    // Without io_uring all requests come through the descriptor, with io_uring those without an answer.
    start_threads(over_uring ? 1 : thread_count());
    leave();
    if (device_.empty()) return {};  // not mounted yet
    struct stat root = {};
    if (stat(path().c_str(), &root) != 0) return fail_errno("the mount does not answer");
    log_info("mounted at {}{}{}", path(), features().passthrough ? ", host files by passthrough" : "",
             over_uring ? ", over io_uring" : "");
    return {};
}

bool Mount::set_waiting(bool begins) {
    // Beyond this number of threads a full device is reported at once.
    constexpr size_t kMostThreads = 32;
    bool last = false;
    size_t threads = 0;
    {
        MutexLock lock(threads_mutex_);
        threads = threads_.size();
        last = begins && waiting_ + 1 >= threads;
        if (last && (threads >= kMostThreads || stopping_)) return false;
        if (begins) ++waiting_;
        else --waiting_;
    }
    // The waiting threads may depend on a request that has not been read yet.
    if (last) start_thread(fmt::format("mount-{}", threads), [this] { serve(); });
    return true;
}

void Mount::start_thread(const std::string& name, std::function<void()> body) {
    MutexLock lock(threads_mutex_);
    ++running_;
    threads_.emplace_back([this, name, body = std::move(body)] {
        sigset_t signals;
        sigfillset(&signals);
        // Signals that the thread causes itself must not be blocked: guarded_copy() depends on one of them.
        for (int own : {SIGUSR1, SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&signals, own);
        pthread_sigmask(SIG_SETMASK, &signals, nullptr);
        pthread_setname_np(pthread_self(), name.c_str());
        body();
        leave();
    });
}

void Mount::leave() {
    bool last = running_.fetch_sub(1) == 1;
    if (!last || stopping_) return;
    log_info("{} was unmounted", path());
    on_end_();
}

bool Mount::make_uring() {
    auto made = Uring::create(backend_, connection_.fd(), FileSystem::kMostBytes);
    if (made) uring_ = std::move(*made);
    else log_warning("requests of {} do not go through io_uring: {}", path(), made.error().message);
    return uring_ != nullptr;
}

bool Mount::start_uring() {
    if (uring_ == nullptr) return false;
    std::vector<std::future<Status>> enrolled;
    for (size_t i = 0; i < uring_->size(); ++i) {
        auto promise = std::make_shared<std::promise<Status>>();
        enrolled.push_back(promise->get_future());
        start_thread(fmt::format("mount-uring-{}", i), [this, promise, &entry = uring_->entry(i)] {
            auto status = entry.enroll();
            promise->set_value(status);
            if (status) serve_uring(entry);
        });
    }
    // The kernel uses io_uring once each queue has an entry. After a refusal it no longer waits for the others.
    std::unordered_map<uint16_t, bool> ready;
    for (size_t i = 0; i < uring_->size(); ++i) {
        auto status = enrolled[i].get();
        ready[uring_->entry(i).queue()] |= status.has_value();
        if (!status) log_warning("{}: an entry for io_uring: {}", path(), status.error().message);
    }
    bool all = std::ranges::all_of(ready, [](const auto& queue) { return queue.second; });
    if (!all) log_warning("requests of {} do not go through io_uring", path());
    return all;
}

void Mount::leave_mounted() {
    connection_.finish_notices();
    stays_mounted_ = true;
    stopping_ = true;
    stop_threads();
}

Mount::~Mount() {
    if (stays_mounted_) return;
    connection_.finish_notices();  // they may wait for our answers, and call files_
    stopping_ = true;
    for (const auto& point : points()) {
        if (point.unmount(false)) continue;
        if (auto detached = point.unmount(true); !detached) log_error("{}", detached.error().message);
    }
    stop_threads();
    files_.end();
}

void Mount::stop_threads() {
    // A signal just before the read is lost, so it is repeated until all threads have ended.
    while (running_ > 0) {
        {
            MutexLock lock(threads_mutex_);
            for (auto& thread : threads_) pthread_kill(thread.native_handle(), SIGUSR1);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    MutexLock lock(threads_mutex_);
    for (auto& thread : threads_) thread.join();
    threads_.clear();
}

size_t Mount::next_request(std::span<std::byte> into, std::chrono::microseconds awake) const {
    pollfd readable{connection_.fd(), POLLIN, 0};
    if (awake.count() > 0) {
        const auto sleep_at = std::chrono::steady_clock::now() + awake;
        while (poll(&readable, 1, 0) == 0 && std::chrono::steady_clock::now() < sleep_at) {
            sched_yield();  // the sender of the next request may need this core
        }
    }
    for (;;) {
        ssize_t got = read(connection_.fd(), into.data(), into.size());
        if (got >= static_cast<ssize_t>(sizeof(fuse_in_header))) return static_cast<size_t>(got);
        if (stopping_) return 0;
        // ENOENT: the request was interrupted before it was read.
        if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
        // Unmounted, or aborted. EPERM: it was never mounted.
        if (got == 0 || errno == ENODEV || errno == ECONNABORTED || errno == EPERM || errno == EBADF) return 0;
        log_error("reading from the mount: {}", strerror(errno));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void Mount::serve() {
    Pinned memory(backend_, kRequestBytes + kScratchBytes);
    if (memory.bytes().empty()) return log_error("no memory for a thread of the mount at {}", path());
    auto request = memory.bytes().first(kRequestBytes);
    auto scratch = memory.bytes().subspan(kRequestBytes);
    std::chrono::microseconds awake{0};
    while (size_t bytes = next_request(request, awake)) {
        Call call(connection_, request.first(bytes), scratch);
        awake = moves_much(call) ? kAwake : std::chrono::microseconds{0};
        files_.handle(call);
    }
}

void Mount::serve_uring(UringEntry& entry) {
    std::chrono::microseconds awake{0};
    while (entry.next(awake, stopping_)) {
        Call call = entry.take();
        awake = moves_much(call) ? kAwake : std::chrono::microseconds{0};
        files_.handle(call);
    }
}

}  // namespace gshm::core::fuse

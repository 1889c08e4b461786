// The mount: threads that take the kernel's requests and have them answered, from mounting until it is unmounted.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fuse/connection.h"
#include "fuse/file_system.h"
#include "fuse/mount_point.h"
#include "fuse/uring.h"

namespace gshm::core::fuse {

class Mount {
public:
    // Returns when the mount answers. on_end is called, from one of the threads, when it was unmounted from outside or
    // by unmount().
    static Result<std::unique_ptr<Mount>> create(Backend& backend, const std::string& path,
                                                 std::function<void()> on_end);
    // Goes on with the mount of an earlier daemon, whose descriptor that is. See FileSystem::resume().
    static Result<std::unique_ptr<Mount>> resume(Backend& backend, const std::string& path, UniqueFd fd,
                                                 bool passthrough, std::unordered_map<uint64_t, NodeId> done,
                                                 std::function<void()> on_end);
    // The mount of that descriptor was unmounted, and no process has a file open in it any more.
    static bool has_ended(int fd);
    // Unmounts, lazily if it must; unless it was left.
    ~Mount();
    // Answers what was asked, and no more: it stays mounted, for whoever has the descriptor.
    void leave_mounted() EXCLUDES(store_lock);
    bool can_be_resumed() const { return files_.can_be_resumed(); }
    int fd() const { return connection_.fd(); }

    std::string note() const { return point_.note(); }
    const std::string& path() const { return point_.path(); }
    bool has_passthrough() const { return files_.has_passthrough(); }
    // See MountPoint::unmount(). The kernel may still have requests, which need the lock.
    Status unmount(bool lazily) EXCLUDES(store_lock) { return point_.unmount(lazily); }

private:
    Mount(Backend& backend, MountPoint point, UniqueFd fd, std::function<void()> on_end);
    Status start();
    static void prepare_signal();
    void start_threads(size_t count);
    void stop_threads();
    // Called where the kernel has requests go through io_uring if we can. False: we cannot.
    bool make_uring();
    // Before any other thread. False: all requests come through the descriptor.
    bool start_uring();
    void start_thread(const std::string& name, std::function<void()> body) EXCLUDES(threads_mutex_);
    // See FileSystem::set_waiting(). There is always a thread that does not wait.
    bool set_waiting(bool begins) EXCLUDES(threads_mutex_);
    // The last to leave says that the mount has ended.
    void leave();
    void serve();
    void serve_uring(UringEntry& entry);
    // Reads one request, after having looked for it for a while before sleeping; 0: there will be none any more.
    size_t next_request(std::span<std::byte> into, std::chrono::microseconds awake) const;

    Backend& backend_;
    MountPoint point_;
    Connection connection_;
    FileSystem files_;
    std::function<void()> on_end_;
    std::unique_ptr<Uring> uring_;  // null: there is none
    std::atomic<bool> stopping_ = false;
    bool stays_mounted_ = false;
    std::atomic<size_t> running_ = 0;
    Mutex threads_mutex_;
    std::vector<std::thread> threads_ GUARDED_BY(threads_mutex_);
    size_t waiting_ GUARDED_BY(threads_mutex_) = 0;  // of the threads
};

}  // namespace gshm::core::fuse

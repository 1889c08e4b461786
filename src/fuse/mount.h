// The mount: threads that receive the kernel's requests and answer them, from mounting until unmounting.
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
    // Returns when the mount answers. on_end is called, from one of the threads, when it was unmounted by another
    // process or by unmount().
    static Result<std::unique_ptr<Mount>> create(Backend& backend, const std::string& path, const MountOptions& options,
                                                 std::function<void()> on_end);
    // Continues the mounts of an earlier daemon, through their descriptor. See FileSystem::resume(). `device` is the
    // number of the file system; "": that of the mount at the path.
    static Result<std::unique_ptr<Mount>> resume(Backend& backend, const std::string& path, const std::string& device,
                                                 UniqueFd fd, FileSystem::Features features,
                                                 std::unordered_map<uint64_t, NodeId> done,
                                                 std::function<void()> on_end);
    // Mounts at a further place. The kernel may send requests, which need the store lock.
    Status add(const std::string& path, const MountOptions& options) EXCLUDES(store_lock);
    // Whether the mount of that descriptor was unmounted, and no process has a file open in it.
    static bool has_ended(int fd);
    // Unmounts everywhere, lazily if it is busy, unless leave_mounted() was called.
    ~Mount();
    // Answers the requests that were read, and no more. The mount stays, for another process with the descriptor.
    void leave_mounted() EXCLUDES(store_lock);
    bool can_be_resumed() const { return files_.can_be_resumed(); }
    int fd() const { return connection_.fd(); }

    // Where it is mounted now. Other processes mount and unmount it, too.
    std::vector<MountPoint> points() const { return MountPoint::all_of(device_); }
    const std::string& device() const { return device_; }
    // The first mountpoint, for messages.
    const std::string& path() const { return path_; }
    const FileSystem::Features& features() const { return files_.features(); }
    // See MountPoint::unmount(). path: one of points(), EINVAL otherwise; "": all. The kernel may still send requests,
    // which need the store lock.
    Status unmount(const std::string& path, bool lazily) EXCLUDES(store_lock);

private:
    Mount(Backend& backend, std::string path, std::string device, UniqueFd fd, std::function<void()> on_end);
    Status start();
    static void prepare_signal();
    void start_threads(size_t count);
    void stop_threads();
    // Called if the kernel can send requests through io_uring. False: gshmd cannot.
    bool make_uring();
    // Called before other threads start. False: all requests come through the descriptor.
    bool start_uring();
    void start_thread(const std::string& name, std::function<void()> body) EXCLUDES(threads_mutex_);
    // See FileSystem::set_waiting(). There is always a thread that does not wait.
    bool set_waiting(bool begins) EXCLUDES(threads_mutex_);
    // Called at the end of each thread. The last call reports the end of the mount.
    void leave();
    void serve();
    void serve_uring(UringEntry& entry);
    // Reads one request. Polls for `awake` before it sleeps. 0: no more requests.
    size_t next_request(std::span<std::byte> into, std::chrono::microseconds awake) const;

    Backend& backend_;
    const std::string path_;
    std::string device_;  // as in MountPoint
    Connection connection_;
    FileSystem files_;
    std::function<void()> on_end_;
    std::unique_ptr<Uring> uring_;  // null: not used
    std::atomic<bool> stopping_ = false;
    bool stays_mounted_ = false;
    std::atomic<size_t> running_ = 0;
    Mutex threads_mutex_;
    std::vector<std::thread> threads_ GUARDED_BY(threads_mutex_);
    size_t waiting_ GUARDED_BY(threads_mutex_) = 0;  // number of waiting threads
};

}  // namespace gshm::core::fuse

// The runtime folder of a running daemon: created, locked against a second daemon, and cleaned up at the end.
#pragma once

#include <functional>
#include <string>

#include "base/fd.h"

namespace gshm::core {

class RuntimeFolder {
public:
    // EBUSY: another gshmd runs there. Waits for a gshmd that is ending, for example after SIGKILL; on_wait then gets
    // the reason. EPERM as of check().
    using OnWait = std::function<void(const std::string& what)>;
    static Result<RuntimeFolder> create(const std::string& dir, const OnWait& on_wait);
    // EPERM: another user could write to the folder, or replace it or a folder above it, and so make gshmd trust a false
    // keeper or catalog. A missing folder is fine.
    static Status check(const std::string& dir);
    // The folder of the daemon that is replaced, with its lock.
    static Result<RuntimeFolder> adopt(const std::string& dir, UniqueFd lock);
    RuntimeFolder(RuntimeFolder&&) = default;
    ~RuntimeFolder() { clean(); }
    // Removes the daemon's files, and the folder if a daemon created it. Called before clients are disconnected, so
    // that a client that sees the end finds no files left.
    void clean();

    // Ends without a successor: removes the socket, keeps the files for the next start.
    void close();
    // Whether a daemon created the folder, this one or an earlier one: clean() then removes it.
    bool is_made() const { return made_; }
    void set_made(bool made) { made_ = made; }
    // Leaves all files to the next daemon.
    void leave() { lock_.reset(); }
    int lock() const { return lock_.get(); }

    // Every user may connect to root's daemon, which checks the rights for each object. The daemon of another user
    // serves this user and root only.
    Result<UniqueFd> listen();
    // For metrics, with the same rights.
    Result<UniqueFd> listen_for_metrics() const;
    std::string log_path() const { return dir_ + "/gshmd.log"; }

private:
    RuntimeFolder(std::string dir, bool made, UniqueFd lock)
        : dir_(std::move(dir)), made_(made), lock_(std::move(lock)) {}
    std::string lock_path() const { return dir_ + "/gshm.lock"; }
    Status write_pid() const;

    std::string dir_;
    bool made_;
    UniqueFd lock_;
};

}  // namespace gshm::core

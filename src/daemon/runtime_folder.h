// The runtime folder while a daemon has it: made, locked against a second daemon, and cleaned up after.
#pragma once

#include <functional>
#include <string>

#include "base/fd.h"

namespace gshm::core {

class RuntimeFolder {
public:
    // EBUSY if another gshmd has it. One that is about to end, killed say, is waited for, and on_wait told so.
    using OnWait = std::function<void(const std::string& what)>;
    static Result<RuntimeFolder> create(const std::string& dir, const OnWait& on_wait);
    // That of a daemon whose place is taken, with its lock.
    static Result<RuntimeFolder> adopt(const std::string& dir, UniqueFd lock);
    RuntimeFolder(RuntimeFolder&&) = default;
    ~RuntimeFolder() { clean(); }
    // Removes what the daemon made there, and the folder if that was the daemon's too. Before clients are let go, so
    // that one who sees the daemon end finds nothing left.
    void clean();

    // There is no daemon any more, but what it needs to begin again.
    void close();
    // Whether the folder goes with the daemon: a daemon has made it, this one or an earlier one.
    bool is_made() const { return made_; }
    void set_made(bool made) { made_ = made; }
    // Leaves it to whoever has the lock now.
    void leave() { lock_.reset(); }
    int lock() const { return lock_.get(); }

    // A listening socket that every user may connect to: rights are decided object by object.
    Result<UniqueFd> listen();
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

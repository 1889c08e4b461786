// Whoever holds our descriptors while gshmd is away: gshm-keeper, or systemd.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "base/fd.h"
#include "daemon/loop.h"

namespace gshm::core {

class Keeper {
public:
    // What an earlier gshmd has left.
    struct Kept {
        uint64_t instance = 0;
        std::unordered_map<uint64_t, UniqueFd> descriptors;
    };

    virtual ~Keeper() = default;

    // A failure is told by on_lost: all is put again then.
    virtual void put(uint64_t key, int fd) REQUIRES(store_lock) = 0;
    virtual void drop(std::span<const uint64_t> keys) REQUIRES(store_lock) = 0;
    // Everything that was put is let go of, and this is the instance from now on.
    virtual void begin(uint64_t instance) REQUIRES(store_lock) = 0;
    // The instance of what was found there.
    virtual void resume(uint64_t instance) REQUIRES(store_lock) = 0;
    // For good: everything is let go of, and nobody keeps anything any more.
    virtual void stop() REQUIRES(store_lock) = 0;
    // 0: none.
    virtual int pid() const REQUIRES(store_lock) { return 0; }

    // From any thread but the loop's: returns when what was dropped is closed.
    virtual void sync() EXCLUDES(store_lock) = 0;
};

// gshm-keeper of that runtime folder: the one that runs there, or a new one. on_lost is called in the loop when it has
// died and another has taken its place, which has nothing yet.
Result<std::unique_ptr<Keeper>> find_or_start_keeper(EventLoop& loop, const std::string& dir,
                                                     std::function<void()> on_lost, Keeper::Kept* ret_kept);
std::string keeper_socket_path(const std::string& dir);
// There is one in that folder, with what a gshmd has left; and how to end it.
Result<bool> holds_something(const std::string& dir);
void stop_keeper(const std::string& dir);

// systemd's store of descriptors, for a service with FileDescriptorStoreMax=. EINVAL unless systemd started us so.
Result<std::unique_ptr<Keeper>> use_systemd_as_keeper(Keeper::Kept* ret_kept);
// Tells systemd, if it is there, that we serve (or are about to end).
void tell_systemd(const std::string& state);

}  // namespace gshm::core

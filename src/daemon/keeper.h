// The process that holds the descriptors of memory while gshmd is away: gshm-keeper, or systemd.
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
    // The descriptors of an earlier gshmd.
    struct Kept {
        uint64_t instance = 0;
        std::unordered_map<uint64_t, UniqueFd> descriptors;
    };

    virtual ~Keeper() = default;

    // A failure is reported by on_lost; all descriptors must then be put again.
    virtual void put(uint64_t key, int fd) REQUIRES(store_lock) = 0;
    virtual void drop(std::span<const uint64_t> keys) REQUIRES(store_lock) = 0;
    // Drops all descriptors and begins a new instance.
    virtual void begin(uint64_t instance) REQUIRES(store_lock) = 0;
    // Continues the instance of the kept descriptors.
    virtual void resume(uint64_t instance) REQUIRES(store_lock) = 0;
    // Drops all descriptors and ends the keeper.
    virtual void stop() REQUIRES(store_lock) = 0;
    // 0: none.
    virtual int pid() const REQUIRES_SHARED(store_lock) { return 0; }

    // From any thread but the loop's: returns when the keeper has closed all dropped descriptors.
    virtual void sync() EXCLUDES(store_lock) = 0;
};

// gshm-keeper of that runtime folder: the running one, or a new one. on_lost is called in the loop when the keeper has
// died and a new one, without descriptors, has replaced it.
Result<std::unique_ptr<Keeper>> find_or_start_keeper(EventLoop& loop, const std::string& dir,
                                                     std::function<void()> on_lost, Keeper::Kept* ret_kept);
std::string keeper_socket_path(const std::string& dir);
// Copies of the descriptors that the keeper of that folder has. No keeper: none.
Result<Keeper::Kept> list_kept(const std::string& dir);
// Whether a keeper runs in that folder and has the descriptors of an earlier gshmd.
Result<bool> holds_something(const std::string& dir);
void stop_keeper(const std::string& dir);

// systemd's store of descriptors, for a service with FileDescriptorStoreMax=. EINVAL: not started by systemd as such a
// service.
Result<std::unique_ptr<Keeper>> use_systemd_as_keeper(Keeper::Kept* ret_kept);
// Sends a state as of sd_notify(3), if gshmd runs under systemd.
void tell_systemd(const std::string& state);

}  // namespace gshm::core

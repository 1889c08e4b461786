// Sessions whose processes cannot release what they hold: stopped ones (SIGSTOP, a debugger), and those that are dead
// but have not gone yet, which may take long while the kernel unmaps GPU memory. For the metrics: looked for between
// scrapes, without a long hold of the store lock.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "daemon/loop.h"
#include "store/store.h"

namespace gshm::core {

class Server;

class StalledHolders {
public:
    enum State : size_t { kStopped, kDead };
    static constexpr size_t kStates = 2;
    struct OfState {
        uint64_t sessions = 0;
        std::vector<uint64_t> bytes;  // of the objects that they have open, by device
    };

    explicit StalledHolders(Server& server) : server_(server) {}
    // In one thread. Does nothing if the last look was a moment ago.
    void look() EXCLUDES(store_lock);
    // As of the last look.
    const std::array<OfState, kStates>& found() const { return found_; }

private:
    using Sessions = std::vector<std::pair<SessionId, pid_t>>;
    Sessions sessions() const EXCLUDES(store_lock);
    void add_bytes(SessionId session, std::vector<uint64_t>* bytes) const EXCLUDES(store_lock);

    Server& server_;
    std::array<OfState, kStates> found_;
    std::chrono::steady_clock::time_point not_before_;
};

}  // namespace gshm::core

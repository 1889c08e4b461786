#include "daemon/stalled_holders.h"

#include <unordered_map>

#include "daemon/process.h"
#include "daemon/server.h"

namespace gshm::core {
namespace {

// Entries in one hold of the store lock. Each takes at most a cache miss or two.
constexpr size_t kAtOnce = 128;
// Between two looks: at least this, and so many times as long as a look takes.
constexpr std::chrono::milliseconds kPause{500};
constexpr int kShare = 50;

std::optional<StalledHolders::State> state_of(pid_t pid) {
    if (pid <= 0) return std::nullopt;  // in another pid namespace
    const auto state = process_state(pid);
    // Its session ends soon, or nothing is known of it.
    if (state == ProcessState::gone) return std::nullopt;
    if (state == ProcessState::dying) return StalledHolders::kDead;
    if (is_stopped(pid)) return StalledHolders::kStopped;
    return std::nullopt;
}

}  // namespace

void StalledHolders::look() {
    const auto begin = std::chrono::steady_clock::now();
    if (begin < not_before_) return;
    std::array<OfState, kStates> found;
    for (auto& state : found) state.bytes.resize(server_.devices().size());
    std::unordered_map<pid_t, std::optional<State>> known;
    for (const auto& [session, pid] : sessions()) {
        auto [entry, is_new] = known.try_emplace(pid);
        if (is_new) entry->second = state_of(pid);
        if (!entry->second) continue;
        ++found[*entry->second].sessions;
        add_bytes(session, &found[*entry->second].bytes);
    }
    found_ = std::move(found);
    const auto end = std::chrono::steady_clock::now();
    not_before_ = end + std::max<std::chrono::steady_clock::duration>(kPause, kShare * (end - begin));
}

StalledHolders::Sessions StalledHolders::sessions() const {
    std::unordered_map<SessionId, pid_t> all;
    for (uint64_t bucket = 0; bucket != UINT64_MAX;) {
        SharedStoreLock lock(server_.loop().store_mutex());
        for (const auto& [session, pid] : server_.store_to_read().sessions(kAtOnce, &bucket)) all[session] = pid;
    }
    return {all.begin(), all.end()};
}

void StalledHolders::add_bytes(SessionId session, std::vector<uint64_t>* bytes) const {
    for (uint64_t bucket = 0; bucket != UINT64_MAX;) {
        // Exclusive: sessions change their leases under the shared lock.
        StoreLock lock(server_.loop().store_mutex());
        if (!server_.store().has_session(session)) return;
        server_.store().add_held_bytes(session, kAtOnce, &bucket, bytes);
    }
}

}  // namespace gshm::core

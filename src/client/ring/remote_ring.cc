#include "client/ring/remote_ring.h"

#include <atomic>

#include "base/limits.h"
#include "client/api.h"

namespace gshm::core::client {
namespace {

// Unique in this process.
uint32_t next_number() {
    static std::atomic<uint32_t> last = 0;
    return ++last;
}

}  // namespace

Result<std::unique_ptr<RemoteRing>> RemoteRing::create(std::shared_ptr<Core> core, uint32_t entries) {
    auto producer = TRY(ring::Producer::create(entries));
    std::unique_ptr<RemoteRing> ring(new RemoteRing(std::move(core), std::move(producer), entries));
    TRY(ring->attach());
    return ring;
}

RemoteRing::~RemoteRing() {
    if (!core_ || !is_attached()) return;  // the ring ends with its session
    (void)core_->connection().call(
        wire::RequestBody::RingDestroy,
        [&](auto& builder) { return wire::CreateRingDestroy(builder, number_).Union(); }, Lost::report);
}

Status RemoteRing::look_for_daemon() {
    TRY(core_->connection().call(
        wire::RequestBody::Ping, [](auto& builder) { return wire::CreatePing(builder).Union(); }, Lost::retry));
    return {};
}

Status RemoteRing::attach() {
    DaemonConnection& connection = core_->connection();
    for (int attempt = 0; attempt < DaemonConnection::kAttempts; ++attempt) {
        TRY(look_for_daemon());
        const uint64_t over = connection.number();
        if (connection_number_ != 0) producer_ = TRY(ring::Producer::create(entries_));
        const uint32_t number = next_number();
        const int descriptors[] = {producer_.memory(), producer_.doorbell()};
        auto made = connection.call_on(
            0, wire::RequestBody::RingCreate,
            [&](auto& builder) { return wire::CreateRingCreate(builder, number).Union(); }, Lost::report, descriptors);
        // The request may have been lost with its connection.
        if (!made && made.error().code != ECONNRESET) return std::unexpected(made.error());
        if (!made || connection.number() != over) {
            MutexLock lock(mutex_);
            connection_number_ = over;  // gshmd may have seen this memory: it is not reused
            continue;
        }
        files_known_.clear();
        MutexLock lock(mutex_);
        number_ = number;
        connection_number_ = over;
        for (auto& slot : slots_) slot.known = false;
        return {};
    }
    return fail(ECONNRESET, "gshmd ends repeatedly");
}

uint32_t RemoteRing::hold(gshm_object& object, bool write, bool* ret_is_new) {
    MutexLock lock(mutex_);
    auto [found, is_new] = by_object_.try_emplace(&object, 0);
    *ret_is_new = is_new;
    if (is_new) {
        if (free_slots_.empty()) {
            free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
            slots_.emplace_back();
        }
        found->second = free_slots_.back();
        free_slots_.pop_back();
        slots_[found->second] = {&object, 0, false, false};
    }
    Slot& slot = slots_[found->second];
    ++slot.held;
    if (write && !slot.write) {
        slot.write = true;
        slot.known = false;
    }
    return found->second;
}

void RemoteRing::let_go(uint32_t slot) {
    MutexLock lock(mutex_);
    --slots_[slot].held;
}

Status RemoteRing::announce(std::span<const uint32_t> slots, std::unordered_map<uint32_t, Error>& ret_errors) {
    std::vector<Wanted> wanted;
    {
        MutexLock lock(mutex_);
        for (uint32_t slot : slots) {
            Slot& one = slots_[slot];
            if (one.known) continue;
            one.known = true;  // set first, so that it is announced once
            wanted.push_back({slot, one.object->id, one.object->key.epoch, one.write});
        }
    }
    Status outcome;
    for (size_t begin = 0; begin < wanted.size() && outcome;) {
        size_t end = begin;
        while (end < wanted.size() && end - begin < limits::kBatchItems && wanted[end].epoch == wanted[begin].epoch)
            ++end;
        outcome = announce_batch({wanted.data() + begin, end - begin}, ret_errors);
        begin = end;
    }
    MutexLock lock(mutex_);
    for (const auto& one : wanted) {
        if (!outcome || ret_errors.contains(one.slot)) slots_[one.slot].known = false;
    }
    return outcome;
}

Status RemoteRing::announce_batch(std::span<const Wanted> wanted, std::unordered_map<uint32_t, Error>& ret_errors) {
    auto answer = core_->connection().call_on(wanted[0].epoch, wire::RequestBody::RingObjects, [&](auto& builder) {
        std::vector<uint32_t> slots;
        std::vector<uint64_t> ids;
        std::vector<uint8_t> write;
        for (const auto& one : wanted) {
            slots.push_back(one.slot);
            ids.push_back(one.id);
            write.push_back(one.write ? 1 : 0);
        }
        auto slot_list = builder.CreateVector(slots);
        auto id_list = builder.CreateVector(ids);
        return wire::CreateRingObjects(builder, number_, slot_list, id_list, builder.CreateVector(write)).Union();
    });
    if (!answer && answer.error().code == ESTALE) {
        for (const auto& one : wanted) ret_errors.emplace(one.slot, answer.error());
        return {};
    }
    if (!answer) return std::unexpected(answer.error());
    const auto* statuses = GSHM_BODY(*answer, StatusReply)->statuses();
    if (statuses->size() != wanted.size()) return fail(EPROTO, "gshmd answered for other objects");
    for (unsigned i = 0; i < wanted.size(); ++i) {
        if (int code = statuses->Get(i); code != 0) {
            ret_errors.emplace(wanted[i].slot, Error{code, std::string(wire::view(answer->reply->message()))});
        }
    }
    return {};
}

Status RemoteRing::announce_file(uint32_t slot, int fd) {
    if (slot < files_known_.size() && files_known_[slot]) return {};
    const int descriptors[] = {fd};
    TRY(core_->connection().call_on(
        0, wire::RequestBody::RingFile,
        [&](auto& builder) { return wire::CreateRingFile(builder, number_, slot).Union(); }, Lost::report,
        descriptors));
    if (slot >= files_known_.size()) files_known_.resize(slot + 1);
    files_known_[slot] = true;
    return {};
}

void RemoteRing::forget_file(uint32_t slot) {
    if (slot >= files_known_.size() || !files_known_[slot]) return;
    files_known_[slot] = false;
    if (!is_attached()) return;
    (void)core_->connection().call(
        wire::RequestBody::RingFile,
        [&](auto& builder) { return wire::CreateRingFile(builder, number_, slot).Union(); }, Lost::report);
}

bool RemoteRing::release(const gshm_object& object) {
    MutexLock lock(mutex_);
    auto found = by_object_.find(&object);
    if (found == by_object_.end()) return true;
    const uint32_t index = found->second;
    Slot& slot = slots_[index];
    if (slot.held > 0) return false;
    if (slot.known && is_attached()) {
        core_->connection().post(
            wire::RequestBody::RingRelease,
            [&](auto& builder) {
                return wire::CreateRingRelease(builder, number_, builder.CreateVector(&index, 1)).Union();
            },
            slot.object->key.epoch);
    }
    slot = {};
    free_slots_.push_back(index);
    by_object_.erase(found);
    return true;
}

}  // namespace gshm::core::client

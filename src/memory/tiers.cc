#include "memory/tiers.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/size.h"
#include "memory/freed_extents.h"

namespace gshm::core {
namespace {

// Copies overlap with the allocations and commits of others, and each file of the host takes about 9 GB/s.
constexpr unsigned kEvictors = 8;
constexpr unsigned kReturners = 4;
// Of one request. The next ones are chosen when these have left.
constexpr size_t kMostObjects = 4096;
constexpr size_t kMostJobs = 64;

bool lacks_room(const Status& status) {
    return !status && status.error().code != EBUSY && status.error().code != ECANCELED && status.error().code != EAGAIN;
}

}  // namespace

Tiers::Tiers(Scheduler& scheduler, Devices& devices, Allocator& allocator, Store& store, Device* gpu, Commit commit)
    : scheduler_(scheduler),
      devices_(devices),
      allocator_(allocator),
      store_(store),
      bulk_(gpu),
      commit_(std::move(commit)),
      of_(store.devices().size()),
      looking_(store.devices().size()) {
    allocator_.set_room_maker(this);
}

Tiers::~Tiers() {
    stop();
}

void Tiers::use(Settings settings) {
    const unsigned percent = settings.free_percent;
    settings_ = std::move(settings);
    if (has_tier()) {
        evictors_ = std::make_unique<Worker>(kEvictors);
        MutexLock lock(watcher_mutex_);
        watcher_ = std::make_unique<Worker>();
    }
    set_free_percent(percent);
}

void Tiers::set_free_percent(unsigned percent) {
    settings_.free_percent = percent;
    reserve_changed();
}

void Tiers::stop() {
    {
        StoreLock lock(scheduler_.store_mutex());
        stopped_ = true;
        if (timer_) scheduler_.cancel(*std::exchange(timer_, std::nullopt));
        store_.evictables().set_on_add({});
        store_.evictables().set_on_release({});
        if (settings_.folder) settings_.folder->stop();
    }
    std::unique_ptr<Worker> watcher;
    {
        MutexLock lock(watcher_mutex_);
        watcher = std::move(watcher_);
    }
    watcher.reset();
    returners_.reset();
    evictors_.reset();
}

uint64_t Tiers::host_used() const {
    return store_.use(*settings_.host).tier_bytes + host_reserved_;
}

// ---- what leaves ----

bool Tiers::make_room(Claim& claim) {
    if (!has_tier() || is_ending()) return false;
    OfDevice& of = of_[claim.device];
    Room& room = of.rooms[claim.returns];
    if (!std::exchange(claim.counted, true)) {
        room.wanted_bytes += claim.bytes;
        claim.failures = room.failures;
    }
    // Nothing more is chosen while the tiers are full or fail.
    if (room.failures != claim.failures) return of.leaving > 0;
    uint64_t coming = allocator_.departures().coming_bytes(claim.device);
    uint64_t wanted = of.rooms[0].wanted_bytes + of.rooms[1].wanted_bytes;
    if (claim.returns) {
        // What leaves for new objects may find the tiers full, and what leaves for these must not be for others.
        coming -= std::min(coming, of.rooms[0].leaving_bytes);
        wanted = room.wanted_bytes;
    }
    const uint64_t expected = coming + devices_.free_bytes(claim.device);
    uint64_t needed = wanted - std::min(wanted, expected);
    // Refused although enough should be free: it is in pieces, or other programs have it.
    if (needed == 0 && coming == 0) needed = std::max<uint64_t>(claim.bytes, 1);
    if (needed > 0) evict(claim.device, needed, claim.returns);
    return of.leaving > 0;
}

void Tiers::end(Claim& claim) {
    if (!std::exchange(claim.counted, false)) return;
    of_[claim.device].rooms[claim.returns].wanted_bytes -= claim.bytes;
}

std::string Tiers::why_full(const Claim& claim) const {
    const OfDevice& of = of_[claim.device];
    const uint64_t evictable = store_.use(claim.device).evictable_bytes;
    if (!claim.counted || of.rooms[claim.returns].failures == claim.failures || evictable == 0) return {};
    return fmt::format("; {} of evictable objects could not leave it: {}", size_text(evictable), of.why);
}

void Tiers::evict(DeviceIndex device, uint64_t bytes, bool for_return, bool briefly) {
    size_t objects = 0;
    for (uint64_t chosen = 0; chosen < bytes && objects < kMostObjects && of_[device].leaving < kMostJobs;) {
        auto leaving = choose(device, bytes - chosen, false, for_return, briefly);
        if (!leaving) return;
        chosen += std::max<uint64_t>(leaving->bytes, 1);
        objects += leaving->objects.size();
        evictors_->submit([this, leaving = std::move(*leaving)]() mutable { run(std::move(leaving)); });
    }
}

std::optional<Tiers::Leaving> Tiers::choose(DeviceIndex device, uint64_t bytes, bool from_tier, bool for_return,
                                            bool briefly) {
    if (is_ending() || allocator_.departures().has_given_up()) return std::nullopt;
    const bool is_host = settings_.host && device == *settings_.host;
    // Objects of the host, and those that the host has as their tier, leave for the folder alone.
    if (!settings_.folder && (is_host || from_tier || !settings_.host)) return std::nullopt;
    auto filter = [from_tier](const Object& object) { return !from_tier || object.is_evicted(); };
    Evictables::Victims victims;
    const size_t entries = store_.evictables().entries(device);
    constexpr size_t kAtOnce = 4096;
    for (size_t looks = 0; looks <= entries / kAtOnce; ++looks) {
        victims = store_.evictables().next(device, bytes, filter);
        if (!victims.objects.empty() || !victims.more || briefly) break;
    }
    if (victims.objects.empty()) return std::nullopt;
    const bool is_slab = victims.objects.front()->extent->slab_group != nullptr;
    Leaving leaving{device, victims.bytes, std::move(victims.objects), is_slab, for_return, 0};
    for (Object* object : leaving.objects) store_.pin(object, Access::read);
    leaving.ticket =
        allocator_.departures().begin(device, Departures::Kind::move, leaving.bytes, leaving.objects.front()->uid);
    ++of_[device].leaving;
    of_[device].rooms[for_return].leaving_bytes += leaving.bytes;
    return leaving;
}

void Tiers::run(Leaving leaving) {
    Status failed;
    for (Object* object : leaving.objects) {
        auto left = leave(*object, Reason::eviction, leaving.for_return);
        if (left) continue;
        log_debug("object {} stays: {}", object->id, left.error().message);
        if (lacks_room(left)) failed = std::move(left);
        if (!failed || is_ending()) break;
    }
    StoreLock lock(scheduler_.store_mutex());
    finish(leaving, failed);
}

void Tiers::warn_of_full(DeviceIndex device, const Error& error) {
    constexpr std::chrono::minutes kBetween{1};
    const auto now = scheduler_.now();
    if (warned_ != Scheduler::Time{} && now < warned_ + kBetween) return;
    warned_ = now;
    log_warning("objects that should leave {} stay there: {}", store_.devices()[device].name, error.message);
}

void Tiers::finish(const Leaving& leaving, const Status& failed) {
    for (Object* object : leaving.objects) store_.unpin(object, Access::read);
    // A slab that has become empty is memory, too.
    if (leaving.is_slab) store_.extents().trim(leaving.device);
    // The reclaimer announces the memory after the commit.
    (void)commit_();
    OfDevice& of = of_[leaving.device];
    --of.leaving;
    of.rooms[leaving.for_return].leaving_bytes -= leaving.bytes;
    if (!failed) {
        ++of.rooms[leaving.for_return].failures;
        of.why = failed.error().message;
        warn_of_full(leaving.device, failed.error());
    } else if (store_.evictables().is_short(leaving.device)) {
        allocated(leaving.device);
    }
    allocator_.departures().end(leaving.device, leaving.ticket, false);
}

Tiers::Seen Tiers::see(const Object& object) const {
    return {object.extent, object.stored, object.size_bytes, object.write_opens,
            object.used_ns.load(std::memory_order_relaxed)};
}

Status Tiers::check_leaving(const Object& object, const Seen& seen, Reason reason) const {
    if (is_ending() || allocator_.departures().has_given_up()) return fail(EAGAIN, "gshmd is ending");
    TRY(store_.check_eviction(object, 1));
    if (object.extent == nullptr) return fail(EBUSY, "the object has no memory there");
    if (reason == Reason::eviction && !Store::may_be_evicted(object)) return fail(EBUSY, "the object is to stay");
    const bool used = reason == Reason::eviction && object.used_ns.load(std::memory_order_relaxed) != seen.used_ns;
    if (used || object.extent != seen.extent || object.size_bytes != seen.size_bytes ||
        object.write_opens != seen.write_opens) {
        return fail(EBUSY, "the object was used while it moved");
    }
    return {};
}

Status Tiers::leave(Object& object, Reason reason, bool for_return) {
    std::shared_ptr<Gate> gate;
    bool host = false;
    bool folder = false;
    {
        StoreLock lock(scheduler_.store_mutex());
        store_.look_again(object);
        TRY(check_leaving(object, see(object), reason));
        TRY(devices_.check(object.device));
        gate = Store::gate(&object);
        host = settings_.host && !object.is_evicted() && object.device != *settings_.host &&
               devices_.check(*settings_.host);
        folder = settings_.folder != nullptr;
    }
    Status left = fail(ENOSPC, "no tier takes the object");
    if (host) left = to_host(object, *gate, reason, for_return);
    if (!lacks_room(left) || !folder) return left;
    auto stored = to_folder(object, *gate, reason, for_return);
    if (host && lacks_room(stored)) stored.error().message = left.error().message + "; " + stored.error().message;
    return stored;
}

Status Tiers::reserve_host(uint64_t bytes, bool for_return) {
    auto full = [this, bytes]() -> Status {
        store_lock.assert_held();
        return fail(ENOSPC, "the tier {} is full: {} of {} are used, and the object needs {}",
                    store_.devices()[*settings_.host].name, size_text(host_used()), size_text(settings_.host_bytes),
                    size_text(bytes));
    };
    constexpr int kMostRounds = 256;  // objects that are used again and again stay
    for (int round = 0; round < kMostRounds; ++round) {
        std::optional<Leaving> older;
        {
            StoreLock lock(scheduler_.store_mutex());
            if (bytes > settings_.host_bytes) return full();
            if (host_used() + bytes <= settings_.host_bytes + (for_return ? returning_from_host_ : 0)) {
                host_reserved_ += bytes;
                return {};
            }
            older = choose(*settings_.host, bytes, true, for_return);
            if (!older) return full();
        }
        Status failed;
        for (Object* object : older->objects) {
            auto left = leave(*object, Reason::eviction, for_return);
            if (lacks_room(left)) failed = std::move(left);
        }
        StoreLock lock(scheduler_.store_mutex());
        finish(*older, failed);
        if (!failed) return full();
    }
    StoreLock lock(scheduler_.store_mutex());
    return full();
}

void Tiers::report(DeviceIndex gpu, const Status& copied) {
    if (copied || !copied.error().device_lost) return;
    scheduler_.post([&devices = devices_, gpu, error = copied.error()] {
        store_lock.assert_held();
        devices.report(gpu, error);
    });
}

Result<Tiers::Target> Tiers::allocate(Object& object, DeviceIndex device, bool waits) {
    for (;;) {
        Target target;
        {
            StoreLock lock(scheduler_.store_mutex());
            TRY(devices_.check(device));
            auto placed = store_.place_elsewhere(object, device);
            target.bytes = object.size_bytes;
            if (auto* place = std::get_if<Place>(&placed)) {
                target.place = *place;
                target.memory = place->extent->memory;
                return target;
            }
            target.need = std::get<ExtentNeed>(placed);
        }
        const ExtentNeed& need = target.need;
        const bool files = devices_.device(device).info().files;
        // Only files of the mount have fabric handles that outlive gshmd: memory without them can be used again.
        const bool lasting = !need.slab && (object.flags & kMountFile) != 0;
        const AllocateOptions options{need.compressible, !need.slab, need.slab || !files, lasting};
        AllocationRequest request{device, need.size_bytes, need.min_bytes, options, object.id, need.uid, 0, waits};
        target.memory =
            TRY(waits ? allocator_.allocate_blocking(request) : allocator_.attempt(device, need.size_bytes, options));
        if (!need.slab) return target;
        StoreLock lock(scheduler_.store_mutex());
        store_.extents().add(need, std::move(target.memory));
    }
}

void Tiers::give_back(Object& object, Target& target) {
    if (target.place.extent == nullptr) return target.memory.reset();
    StoreLock lock(scheduler_.store_mutex());
    store_.extents().detach(target.place, target.bytes, false, object.uid);
    (void)commit_();
}

namespace {

// Shared for bytes that cannot change, until the copy is complete; then exclusive.
class GateLock {
public:
    GateLock(Gate& gate, bool sealed) : shared_(gate.mutex, std::defer_lock), alone_(gate.mutex, std::defer_lock) {
        if (sealed) shared_.lock();
        else alone_.lock();
    }
    void lock_alone() {
        if (alone_.owns_lock()) return;
        shared_.unlock();
        alone_.lock();
    }

private:
    std::shared_lock<std::shared_mutex> shared_;
    std::unique_lock<std::shared_mutex> alone_;
};

}  // namespace

Status Tiers::to_host(Object& object, Gate& gate, Reason reason, bool for_return) {
    Seen seen;
    DeviceIndex host = 0;
    DeviceIndex home = 0;
    bool sealed = false;
    {
        StoreLock lock(scheduler_.store_mutex());
        seen = see(object);
        host = *settings_.host;
        home = object.home();
        sealed = object.state == ObjectState::sealed;
    }
    TRY(reserve_host(seen.size_bytes, for_return));
    auto move = [&]() -> Status {
        Target target = TRY(allocate(object, host, false));
        auto copied = [&]() -> Status {
            GateLock lock(gate, sealed);
            auto check = [&]() -> Status {
                StoreLock store(scheduler_.store_mutex());
                return check_leaving(object, seen, reason);
            };
            TRY(check());
            if (!gate.memory || target.bytes != seen.size_bytes) return fail(EBUSY, "the object has changed");
            TRY(bulk_.copy(*target.memory, target.place.offset, *gate.memory, gate.offset, target.bytes, check));
            lock.lock_alone();
            StoreLock store(scheduler_.store_mutex());
            TRY(check_leaving(object, seen, reason));
            if (target.place.extent == nullptr) {
                target.place = {store_.extents().add(target.need, target.memory), 0};
            }
            target.memory.reset();
            store_.move(&object, host, target.place, false, home + 1);
            host_reserved_ -= seen.size_bytes;
            (void)commit_();
            return {};
        }();
        report(home, copied);
        if (!copied) give_back(object, target);
        return copied;
    };
    auto moved = move();
    if (!moved) {
        StoreLock lock(scheduler_.store_mutex());
        host_reserved_ -= seen.size_bytes;
    }
    return moved;
}

Status Tiers::to_folder(Object& object, Gate& gate, Reason reason, bool for_return) {
    Seen seen;
    TierFolder* folder = nullptr;
    bool sealed = false;
    uint64_t over_bytes = 0;
    {
        StoreLock lock(scheduler_.store_mutex());
        seen = see(object);
        over_bytes = for_return ? returning_from_folder_ : 0;
        folder = settings_.folder.get();
        sealed = object.state == ObjectState::sealed;
    }
    GateLock lock(gate, sealed);
    auto check = [&]() -> Status {
        StoreLock store(scheduler_.store_mutex());
        return check_leaving(object, seen, reason);
    };
    TRY(check());
    if (!gate.memory) return fail(EBUSY, "the object has changed");
    const uint64_t file = TRY(folder->write(*gate.memory, gate.offset, seen.size_bytes, check, over_bytes));
    lock.lock_alone();
    StoreLock store(scheduler_.store_mutex());
    if (auto good = check_leaving(object, seen, reason); !good) {
        folder->remove(file);
        return good;
    }
    store_.set_stored(&object, file);
    (void)commit_();
    return {};
}

void Tiers::demote(Object& object, Done done) {
    auto post = [this, done = std::move(done)](Status status) mutable {
        scheduler_.post([done = std::move(done), status = std::move(status)]() mutable { done(std::move(status)); });
    };
    if (!has_tier()) return post(fail(EOPNOTSUPP, "gshmd was started without a tier (`--tier`)"));
    if (is_ending()) return post(fail(EAGAIN, "gshmd is ending"));
    // One in host memory goes on to the folder.
    if (object.stored != 0 || (object.is_evicted() && !settings_.folder)) return post({});
    // A file of the host may have grown without a request.
    store_.look_again(object);
    if (auto good = store_.check_eviction(object); !good) return post(std::move(good));
    if (object.extent == nullptr || object.size_bytes == 0) return post(fail(ENODATA, "the object has no bytes"));
    store_.pin(&object, Access::read);
    evictors_->submit([this, &object, post = std::move(post)]() mutable {
        auto left = leave(object, Reason::request, false);
        {
            StoreLock lock(scheduler_.store_mutex());
            store_.unpin(&object, Access::read);
            (void)commit_();
        }
        post(std::move(left));
    });
}

// ---- what returns ----

void Tiers::bring_back(Object& object, Done done) {
    auto [waiting, is_first] = returning_.try_emplace(object.id);
    waiting->second.push_back(std::move(done));
    if (!is_first) return;
    auto ended = [this, &object](Status status) {
        store_lock.assert_held();
        auto waiting = returning_.extract(object.id);
        store_.unpin(&object, Access::read);
        (void)commit_();
        for (Done& done : waiting.mapped()) done(status);
    };
    store_.pin(&object, Access::read);
    if (is_ending()) {
        return scheduler_.post([ended]() mutable { ended(fail(EAGAIN, "gshmd is ending")); });
    }
    if (!returners_) returners_ = std::make_unique<Worker>(kReturners);
    returners_->submit([this, &object, ended]() mutable {
        auto returned = return_object(object);
        scheduler_.post([ended, returned = std::move(returned)]() mutable { ended(std::move(returned)); });
    });
}

Status Tiers::bring_back_blocking(Object& object) {
    // Shared, since the loop may have ended and never run the task.
    auto answer = std::make_shared<std::promise<Status>>();
    auto answered = answer->get_future();
    {
        StoreLock lock(scheduler_.store_mutex());
        if (!object.is_evicted()) return {};
        bring_back(object, [answer](Status status) { answer->set_value(std::move(status)); });
    }
    while (answered.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
        if (is_ending()) return fail(EAGAIN, "gshmd is ending");
    }
    return answered.get();
}

// While an object returns, what leaves for it may have as much of the tier as the object still has there: without that, no
// object could return to a full device from a full tier.
class Tiers::Returning {
public:
    Returning(Tiers& tiers, DeviceIndex device, bool stored, uint64_t size_bytes) : tiers_(tiers), stored_(stored) {
        // Objects leave with all their memory: sizes are rounded up there, and small objects leave with their slab.
        const uint64_t granularity = std::max<uint64_t>(tiers.devices_.device(device).info().granularity_bytes, 1);
        bytes_ = size_bytes <= limits::kSmallObjectBytes ? limits::kSlabBytesMax : round_up(size_bytes, granularity);
        // Several files have more overhead than one.
        if (stored) bytes_ = TierFolder::file_bytes(bytes_) + TierFolder::file_bytes(bytes_ / kOverhead);
        StoreLock lock(tiers_.scheduler_.store_mutex());
        (stored_ ? tiers_.returning_from_folder_ : tiers_.returning_from_host_) += bytes_;
        ++tiers_.returns_;
    }
    ~Returning() {
        StoreLock lock(tiers_.scheduler_.store_mutex());
        (stored_ ? tiers_.returning_from_folder_ : tiers_.returning_from_host_) -= bytes_;
        --tiers_.returns_;
        ++tiers_.ended_returns_;
    }
    Returning(const Returning&) = delete;
    Returning& operator=(const Returning&) = delete;

private:
    static constexpr uint64_t kOverhead = 128;  // 8 KiB for each MiB: files of objects with memory of their own
    Tiers& tiers_;
    const bool stored_;
    uint64_t bytes_ = 0;
};

Result<Tiers::Target> Tiers::allocate_for_return(Object& object, DeviceIndex home) {
    constexpr int kMostTries = 64;
    for (int tries = 1;; ++tries) {
        uint64_t ended = 0;
        {
            StoreLock lock(scheduler_.store_mutex());
            ended = ended_returns_;
        }
        auto target = allocate(object, home, true);
        if (target || target.error().code != ENOSPC || tries == kMostTries) return target;
        if (!another_returns(ended)) return target;
    }
}

bool Tiers::another_returns(uint64_t ended) {
    bool waits = false;
    for (;;) {
        {
            StoreLock lock(scheduler_.store_mutex());
            if (!std::exchange(waits, true)) ++waiting_returns_;
            const bool has_ended = ended_returns_ != ended;
            if (has_ended || is_ending() || waiting_returns_ == returns_) {
                --waiting_returns_;
                return has_ended;
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

Status Tiers::return_object(Object& object) {
    std::shared_ptr<Gate> gate;
    Seen seen;
    DeviceIndex home = 0;
    TierFolder* folder = nullptr;
    bool sealed = false;
    auto check = [&]() -> Status {
        if (is_ending()) return fail(EAGAIN, "gshmd is ending");
        StoreLock lock(scheduler_.store_mutex());
        if (object.links == 0 && object.leases <= 1) return fail(ENOENT, "the object was removed while it returned");
        TRY(devices_.check(home));
        TRY(store_.check_return(object));
        if (object.extent != seen.extent || object.stored != seen.stored || object.size_bytes != seen.size_bytes ||
            object.write_opens != seen.write_opens) {
            return fail(EBUSY, "the object was changed while it returned");
        }
        return {};
    };
    {
        StoreLock lock(scheduler_.store_mutex());
        if (!object.is_evicted()) return {};
        store_.look_again(object);
        gate = Store::gate(&object);
        seen = see(object);
        home = object.home();
        folder = settings_.folder.get();
        sealed = object.state == ObjectState::sealed;
        if (object.stored != 0 && folder == nullptr) return fail(ENODEV, "the tier that has the object is not there");
    }
    TRY(check());
    const Returning returning(*this, home, seen.stored != 0, seen.size_bytes);
    Target target = TRY(allocate_for_return(object, home));
    auto returned = [&]() -> Status {
        GateLock lock(*gate, sealed && seen.stored == 0);
        TRY(check());
        if (target.bytes != seen.size_bytes) return fail(EBUSY, "the object was changed while it returned");
        if (seen.stored != 0) {
            TRY(folder->read(seen.stored, *target.memory, target.place.offset, target.bytes, check));
        } else {
            if (!gate->memory) return fail(EBUSY, "the object was emptied while it returned");
            TRY(bulk_.copy(*target.memory, target.place.offset, *gate->memory, gate->offset, target.bytes, check));
        }
        lock.lock_alone();
        TRY(check());
        StoreLock store(scheduler_.store_mutex());
        TRY(store_.check_return(object));
        if (object.extent != seen.extent || object.stored != seen.stored) return fail(EBUSY, "the object has moved");
        if (target.place.extent == nullptr) target.place = {store_.extents().add(target.need, target.memory), 0};
        target.memory.reset();
        store_.move(&object, home, target.place, object.session_leases > 0, 0);
        (void)commit_();
        return {};
    }();
    report(home, returned);
    if (!returned) give_back(object, target);
    return returned;
}

}  // namespace gshm::core

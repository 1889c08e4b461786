#include "memory/tiers.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "base/log.h"
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

void Tiers::reserve_changed() {
    bool watches = settings_.free_percent > 0;
    for (DeviceIndex i = 0; i < of_.size(); ++i) watches |= devices_.reserve_bytes(i) > 0;
    watches_ = watches && has_tier();
    if (!watches_) return;
    store_.evictables().set_on_release([this](DeviceIndex device) { allocated(device); });
    // At the start the loop does not run yet.
    scheduler_.post([this] {
        store_lock.assert_held();
        for (OfDevice& of : of_) of.pause = 0;
        look();
    });
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

std::vector<Tiers::State> Tiers::states() const {
    std::vector<State> states;
    if (settings_.host) {
        const Account& account = store_.use(*settings_.host);
        states.push_back({store_.devices()[*settings_.host].name,
                          settings_.host_bytes,
                          account.tier_bytes,
                          account.tier_objects,
                          false,
                          {}});
    }
    if (const TierFolder* folder = settings_.folder.get()) {
        states.push_back({folder->path(), folder->capacity_bytes(), folder->used_bytes(), folder->objects(),
                          folder->keeps(), folder->failure()});
    }
    return states;
}

// ---- what leaves ----

bool Tiers::make_room(Claim& claim) {
    if (!has_tier() || is_ending()) return false;
    OfDevice& of = of_[claim.device];
    if (!std::exchange(claim.counted, true)) {
        of.wanted_bytes += claim.bytes;
        claim.failures = of.failures;
    }
    // Nothing more is chosen while the tiers are full or fail.
    if (of.failures != claim.failures) return of.leaving > 0;
    const uint64_t coming = allocator_.departures().coming_bytes(claim.device);
    const uint64_t expected = coming + devices_.free_bytes(claim.device);
    uint64_t needed = of.wanted_bytes - std::min(of.wanted_bytes, expected);
    // Refused although enough should be free: it is in pieces, or other programs have it.
    if (needed == 0 && coming == 0) needed = std::max<uint64_t>(claim.bytes, 1);
    if (needed > 0) evict(claim.device, needed);
    return of.leaving > 0;
}

void Tiers::end(Claim& claim) {
    if (!std::exchange(claim.counted, false)) return;
    of_[claim.device].wanted_bytes -= claim.bytes;
}

void Tiers::evict(DeviceIndex device, uint64_t bytes, bool briefly) {
    size_t objects = 0;
    for (uint64_t chosen = 0; chosen < bytes && objects < kMostObjects && of_[device].leaving < kMostJobs;) {
        auto leaving = choose(device, bytes - chosen, false, briefly);
        if (!leaving) return;
        chosen += std::max<uint64_t>(leaving->bytes, 1);
        objects += leaving->objects.size();
        evictors_->submit([this, leaving = std::move(*leaving)]() mutable { run(std::move(leaving)); });
    }
}

std::optional<Tiers::Leaving> Tiers::choose(DeviceIndex device, uint64_t bytes, bool from_tier, bool briefly) {
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
    Leaving leaving{device, victims.bytes, std::move(victims.objects), is_slab};
    for (Object* object : leaving.objects) store_.pin(object, Access::read);
    leaving.ticket =
        allocator_.departures().begin(device, Departures::Kind::move, leaving.bytes, leaving.objects.front()->uid);
    ++of_[device].leaving;
    return leaving;
}

void Tiers::run(Leaving leaving) {
    bool failed = false;
    for (Object* object : leaving.objects) {
        auto left = leave(*object, Reason::eviction);
        if (left) continue;
        failed |= lacks_room(left);
        log_debug("object {} stays: {}", object->id, left.error().message);
        if (failed || is_ending()) break;
    }
    StoreLock lock(scheduler_.store_mutex());
    finish(leaving, failed);
}

void Tiers::finish(const Leaving& leaving, bool failed) {
    for (Object* object : leaving.objects) store_.unpin(object, Access::read);
    // A slab that has become empty is memory, too.
    if (leaving.is_slab) store_.extents().trim(leaving.device);
    // The reclaimer announces the memory after the commit.
    (void)commit_();
    OfDevice& of = of_[leaving.device];
    --of.leaving;
    if (failed) ++of.failures;
    else if (store_.evictables().is_short(leaving.device)) allocated(leaving.device);
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

Status Tiers::leave(Object& object, Reason reason) {
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
    if (host) left = to_host(object, *gate, reason);
    if (lacks_room(left) && folder) left = to_folder(object, *gate, reason);
    return left;
}

bool Tiers::reserve_host(uint64_t bytes) {
    constexpr int kMostRounds = 256;  // objects that are used again and again stay
    for (int round = 0; round < kMostRounds; ++round) {
        std::optional<Leaving> older;
        {
            StoreLock lock(scheduler_.store_mutex());
            if (bytes > settings_.host_bytes) return false;
            if (host_used() + bytes <= settings_.host_bytes) {
                host_reserved_ += bytes;
                return true;
            }
            older = choose(*settings_.host, bytes, true);
        }
        if (!older) return false;
        bool failed = false;
        for (Object* object : older->objects) failed |= lacks_room(leave(*object, Reason::eviction));
        StoreLock lock(scheduler_.store_mutex());
        finish(*older, failed);
        if (failed) return false;
    }
    return false;
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
        AllocationRequest request{device, need.size_bytes, need.min_bytes, options, object.id, need.uid, 0};
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

Status Tiers::to_host(Object& object, Gate& gate, Reason reason) {
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
    if (!reserve_host(seen.size_bytes)) return fail(ENOSPC, "the tier {} is full", devices_.device(host).info().name);
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

Status Tiers::to_folder(Object& object, Gate& gate, Reason reason) {
    Seen seen;
    TierFolder* folder = nullptr;
    bool sealed = false;
    {
        StoreLock lock(scheduler_.store_mutex());
        seen = see(object);
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
    const uint64_t file = TRY(folder->write(*gate.memory, gate.offset, seen.size_bytes, check));
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
    if (object.is_evicted() || object.stored != 0) return post({});
    // A file of the host may have grown without a request.
    store_.look_again(object);
    if (auto good = store_.check_eviction(object); !good) return post(std::move(good));
    if (object.extent == nullptr || object.size_bytes == 0) return post(fail(ENODATA, "the object has no bytes"));
    store_.pin(&object, Access::read);
    evictors_->submit([this, &object, post = std::move(post)]() mutable {
        auto left = leave(object, Reason::request);
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
    Target target = TRY(allocate(object, home, true));
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

// ---- the reserve ----

void Tiers::allocated(DeviceIndex device) {
    if (!watches_.load(std::memory_order_relaxed) || looking_[device].exchange(true)) return;
    MutexLock lock(watcher_mutex_);
    if (!watcher_) return;
    watcher_->submit([this, device] {
        // Evictions would compete with the other allocations of a burst for the driver.
        constexpr std::chrono::milliseconds kBurst{10};
        std::this_thread::sleep_for(kBurst);
        looking_[device] = false;
        keep_free(device);
    });
}

void Tiers::begin_looking() {
    if (timer_ || is_ending() || !watches_) return;
    constexpr std::chrono::seconds kEvery{1};
    timer_ = scheduler_.after(kEvery, [this] {
        store_lock.assert_held();
        timer_.reset();
        look();
    });
}

void Tiers::look() {
    if (is_ending()) return;
    bool any = false;
    for (DeviceIndex device = 0; device < of_.size(); ++device) {
        if (store_.use(device).evictable_bytes == 0 || !devices_.check(device)) continue;
        any = true;
        if (!pauses(of_[device])) allocated(device);
    }
    if (any) return begin_looking();
    store_.evictables().set_on_add([this] {
        scheduler_.post([this] {
            store_lock.assert_held();
            begin_looking();
        });
    });
}

bool Tiers::pauses(OfDevice& of) {
    constexpr unsigned kLongest = 64;
    if (std::exchange(of.seen_failures, of.failures) != of.failures) {
        of.pause = std::clamp(2 * of.pause, 1U, kLongest);
        of.paused = 0;
        return true;
    }
    return of.pause > 0 && ++of.paused % of.pause != 0;
}

uint64_t Tiers::free_for_objects(DeviceIndex device) {
    Device& memory = devices_.device(device);
    if (!memory.info().knows_free_bytes) return UINT64_MAX;
    uint64_t free = memory.free_bytes();
    if (free < devices_.reserve_bytes(device) && devices_.freed().bytes(device) > 0) {
        // Other programs cannot use it. An object does not leave in its place.
        devices_.freed().drop(device).clear();
        devices_.wait_for_reclaimed(device);
        free = memory.free_bytes();
    }
    const uint64_t kept = devices_.freed().bytes(device);
    return free > UINT64_MAX - kept ? UINT64_MAX : free + kept;
}

void Tiers::keep_free(DeviceIndex device) {
    const uint64_t free = free_for_objects(device);
    bool full_tier = false;
    {
        StoreLock lock(scheduler_.store_mutex());
        if (!has_tier() || is_ending()) return;
        const uint64_t wanted = devices_.device(device).info().capacity_bytes / 100 * settings_.free_percent;
        const uint64_t for_others = devices_.reserve_bytes(device);
        const uint64_t coming = allocator_.departures().coming_bytes(device);
        auto missing = [&](uint64_t bytes, uint64_t from) {
            const uint64_t expected = from > UINT64_MAX - coming ? UINT64_MAX : from + coming;
            return bytes - std::min(bytes, expected);
        };
        const uint64_t short_by =
            std::max(missing(wanted, devices_.free_bytes(device)), missing(for_others + wanted, free));
        store_.evictables().set_short(device, short_by > 0);
        if (store_.use(device).evictable_bytes > 0 && short_by > 0) evict(device, short_by, true);
        const uint64_t tier_reserve = settings_.host_bytes / 100 * settings_.free_percent;
        full_tier = settings_.host && settings_.folder && host_used() + tier_reserve > settings_.host_bytes;
    }
    if (!full_tier) return;
    StoreLock lock(scheduler_.store_mutex());
    const uint64_t tier_reserve = settings_.host_bytes / 100 * settings_.free_percent;
    auto older = choose(*settings_.host, tier_reserve, true);
    if (!older) return;
    evictors_->submit([this, older = std::move(*older)]() mutable { run(std::move(older)); });
}

}  // namespace gshm::core

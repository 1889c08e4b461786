#include "memory/move.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/size.h"
#include "store/account_limits.h"
#include "store/files.h"

namespace gshm::core {
namespace {

// A move can be cancelled between two pieces.
constexpr uint64_t kPieceBytes = uint64_t{64} << 20;

}  // namespace

AllocateOptions Mover::options(const Device& device, bool compressible) const {
    return {.compressible = compressible, .resizable = true, .shared = !device.info().files, .lasting_handle = true};
}

Status Mover::resize(Object& object, Gate& gate, const Resize& wanted) {
    const DeviceIndex device = gate.device;
    const DeviceInfo& info = devices_.device(device).info();
    if (wanted.may_share && wanted.capacity_bytes == wanted.size_bytes) {
        StoreLock lock(scheduler_.store_mutex());
        const bool shares = store_.may_share(object, device, wanted.size_bytes);
        lock.unlock();
        // EAGAIN: it needs memory of its own after all.
        auto resized = shares ? resize_in_slab(object, gate, wanted) : Status(fail(EAGAIN, ""));
        if (resized || resized.error().code != EAGAIN) return resized;
    }
    const bool exact = info.files && !wanted.fixed;
    const uint64_t bytes = exact ? wanted.size_bytes : round_up(wanted.capacity_bytes, info.granularity_bytes);
    Departures& departures = allocator_.departures();
    bool compressible = false;
    uint32_t leases = 0;
    uint32_t write_opens = 0;
    Departures::Ticket ticket = 0;
    {
        StoreLock lock(scheduler_.store_mutex());
        TRY(devices_.check(device));
        leases = object.session_leases;
        write_opens = object.write_opens;
        compressible = (object.flags & kCreateCompressible) != 0 && info.compressible;
        ticket = departures.begin(device, Departures::Kind::move, gate.memory ? gate.memory->size() : 0, object.uid);
    }
    AllocateOptions how = options(devices_.device(device), compressible);
    if (wanted.fixed) how = {.compressible = compressible, .resizable = false, .shared = true};
    auto memory = allocator_.attempt(device, bytes, how);
    Status moved = memory ? Status{} : std::unexpected(memory.error());
    for (uint64_t at = 0; moved && at < wanted.kept_bytes; at += kPieceBytes) {
        if (wanted.for_tidiness) {
            StoreLock lock(scheduler_.store_mutex());
            if (object.links == 0) moved = fail(ECANCELED, "the file was removed while it moved");
        }
        const uint64_t piece = std::min(kPieceBytes, wanted.kept_bytes - at);
        if (moved) moved = (*memory)->copy_from(at, *gate.memory, gate.offset + at, piece);
    }
    // The reclaimer frees the old memory and reports that.
    if (moved) {
        StoreLock lock(scheduler_.store_mutex());
        // Sessions that map the old memory keep it.
        const bool keeps_old = object.session_leases > 0 && object.extent != nullptr && !object.extent->unmapped;
        if (wanted.unless_opened && (object.session_leases > leases || object.write_opens != write_opens)) {
            moved = fail(ECANCELED, "the file was opened while it moved");
        } else if (wanted.fixed && object.open_files > 0) {
            moved = fail(EBUSY, "the file was opened in the mount while it moved");
        } else if (auto allowed = keeps_old ? store_.limits().check_former(object) : Status{}; !allowed) {
            moved = allowed;
        } else {
            Files files(store_);
            files.drop_backing(object.id);
            files.replace_memory(object, std::move(*memory), wanted.size_bytes);
            departures.end(device, ticket, false);
            return {};
        }
    }
    const bool freed = memory.has_value();
    if (freed) memory->reset();
    StoreLock lock(scheduler_.store_mutex());
    departures.end(device, ticket, freed);
    return moved;
}

Result<Place> Mover::place_in_slab(Object& object, DeviceIndex device, uint64_t size_bytes) {
    for (;;) {
        ExtentNeed need;
        {
            StoreLock lock(scheduler_.store_mutex());
            TRY(devices_.check(device));
            auto placed = store_.place_unmapped(object, size_bytes);
            if (auto* place = std::get_if<Place>(&placed)) return *place;
            need = std::get<ExtentNeed>(placed);
        }
        const AllocateOptions options{.compressible = need.compressible, .resizable = false, .shared = true};
        auto slab = allocator_.attempt(device, need.size_bytes, options);
        if (!slab && slab.error().code == ENOSPC) slab = allocator_.attempt(device, need.min_bytes, options);
        if (!slab) return std::unexpected(slab.error());
        StoreLock lock(scheduler_.store_mutex());
        store_.extents().add(need, std::move(*slab));
    }
}

Status Mover::resize_in_slab(Object& object, Gate& gate, const Resize& wanted) {
    const Place place = TRY(place_in_slab(object, gate.device, wanted.size_bytes));
    // Places in slabs are zero.
    Status moved;
    if (wanted.kept_bytes > 0) {
        moved = place.extent->memory->copy_from(place.offset, *gate.memory, gate.offset, wanted.kept_bytes);
    }
    StoreLock lock(scheduler_.store_mutex());
    if (moved && wanted.for_tidiness && object.links == 0) {
        moved = fail(ECANCELED, "the file was removed while it moved");
    }
    // A session that has opened it meanwhile may use its memory without the gate.
    if (moved && !store_.may_share(object, gate.device, wanted.size_bytes)) {
        moved = fail(wanted.unless_opened ? ECANCELED : EAGAIN, "the file was opened while it moved");
    }
    if (moved) {
        Files(store_).drop_backing(object.id);
        store_.replace_memory(&object, place, wanted.size_bytes);
    } else {
        store_.extents().detach(place, wanted.size_bytes, false, object.uid);
    }
    return moved;
}

void Mover::give_own_memory(std::vector<Object*> objects, OwnDone done) {
    struct Job {
        Object* object;
        std::shared_ptr<Gate> gate;
        Status status = {};
    };
    if (!worker_) {
        std::unordered_map<NodeId, Error> failed;
        for (const Object* object : objects) failed.emplace(object->id, Error{EAGAIN, "gshmd is ending"});
        return done(std::move(failed));
    }
    std::vector<Job> jobs;
    for (Object* object : objects) {
        store_.pin(object, Access::read);
        jobs.push_back({object, Store::gate(object)});
    }
    worker_->submit([this, jobs = std::move(jobs), done = std::move(done)]() mutable {
        for (Job& job : jobs) {
            job.status = give_own_memory(*job.object, *job.gate);
            if (job.status) job.status = leave_closed_slab(*job.object, job.gate);
        }
        scheduler_.post([this, jobs = std::move(jobs), done = std::move(done)]() mutable {
            store_lock.assert_held();
            std::unordered_map<NodeId, Error> failed;
            for (Job& job : jobs) {
                if (!job.status) failed.emplace(job.object->id, job.status.error());
                store_.unpin(job.object, Access::read);
            }
            done(std::move(failed));
        });
    });
}

Status Mover::leave_closed_slab(Object& object, std::shared_ptr<Gate> gate) {
    Job job{&object, std::move(gate), 0, true};
    {
        StoreLock lock(scheduler_.store_mutex());
        if (object.extent == nullptr || !object.extent->closed) return {};
        // Others would go on with the old bytes.
        if (object.state != ObjectState::sealed && object.session_leases > 0) {
            return fail(EACCES, "the object shares its memory with objects that you may not open, and another process "
                                "has it open");
        }
        job.to = object.device;
    }
    return run(job);
}

Status Mover::give_own_memory(Object& object, Gate& gate) {
    auto attempt = [&]() -> Status {
        std::unique_lock gate_lock(gate.mutex);
        Resize wanted;
        {
            StoreLock lock(scheduler_.store_mutex());
            store_.look_again(object);
            if (object.extent == nullptr) return {};
            wanted.fixed = store_.limits().may_outgrow(object);
            if (!object.extent->unmapped && !wanted.fixed) return {};
            if (wanted.fixed && object.open_files > 0) {
                return fail(EBUSY, "the file is open in the mount, and its owner has a limit");
            }
            wanted.capacity_bytes = wanted.kept_bytes = wanted.size_bytes = object.size_bytes;
            wanted.unless_opened = wanted.fixed;
        }
        return resize(object, gate, wanted);
    };
    return allocator_.retry(gate.device, object.id, attempt, [](bool) { return true; });
}

Status Mover::leave_slab(Object& object) {
    auto memory = TRY(allocator_.attempt_at_once(object.device, object.size_bytes, {.resizable = true}));
    TRY(memory->copy_from(0, *object.extent->memory, object.offset, object.size_bytes));
    store_.replace_memory(&object, std::move(memory), object.size_bytes, false);
    return {};
}

void Mover::move(Object& object, DeviceIndex to, Holders holders, Done done) {
    store_.look_again(object);
    Job job{&object, Store::gate(&object), to, holders == Holders::keep};
    auto begin = [&]() -> Status {
        store_lock.assert_held();
        TRY(devices_.check(object.device));
        TRY(devices_.check(to));
        if (!worker_ || allocator_.departures().has_given_up()) return fail(EAGAIN, "gshmd is ending");
        TRY(store_.check_move(object, to, job.keep));
        return store_.limits().check_device(object, to, object.session_leases > 0);
    };
    if (object.device == to) return done({});
    if (auto begun = begin(); !begun) return done(std::move(begun));
    if (object.extent == nullptr) {
        store_.set_device(&object, to);
        return done({});
    }
    store_.pin(&object, Access::read);
    worker_->submit([this, job = std::move(job), done = std::move(done)]() mutable {
        Status status = run(job);
        scheduler_.post([this, job = std::move(job), status = std::move(status), done = std::move(done)]() mutable {
            store_lock.assert_held();
            store_.unpin(job.object, Access::read);
            done(std::move(status));
        });
    });
}

void Mover::stop() {
    worker_.reset();
}

// Reserves a place in a slab, or allocates. Without the gate, since the freeing of other memory may need it.
Result<Mover::Target> Mover::allocate(const Job& job) {
    for (;;) {
        Target target;
        {
            StoreLock lock(scheduler_.store_mutex());
            auto placed = store_.place_elsewhere(*job.object, job.to);
            target.bytes = job.object->size_bytes;
            if (auto* place = std::get_if<Place>(&placed)) {
                target.place = *place;
                target.memory = place->extent->memory;
                return target;
            }
            target.need = std::get<ExtentNeed>(placed);
        }
        const ExtentNeed& need = target.need;
        AllocationRequest request{need.device, need.size_bytes, need.min_bytes, {}, job.object->id, need.uid, 0};
        request.options = need.slab ? AllocateOptions{need.compressible, false, true}
                                    : options(devices_.device(need.device), need.compressible);
        target.memory = TRY(allocator_.allocate_blocking(request));
        if (!need.slab) return target;
        StoreLock lock(scheduler_.store_mutex());
        store_.extents().add(need, std::move(target.memory));
    }
}

void Mover::give_back(const Job& job, Target& target) {
    if (target.place.extent == nullptr) return target.memory.reset();
    StoreLock lock(scheduler_.store_mutex());
    store_.extents().detach(target.place, target.bytes, false, job.object->uid);
}

Status Mover::copy(const Job& job, const Target& target, Extent& source, uint64_t offset) {
    for (uint64_t at = 0; at < target.bytes; at += kPieceBytes) {
        if (allocator_.departures().has_given_up()) return fail(EAGAIN, "gshmd ends; the object stays where it was");
        {
            StoreLock lock(scheduler_.store_mutex());
            if (job.object->links == 0) return fail(ENOENT, "the object was removed while it moved");
        }
        const uint64_t piece = std::min(kPieceBytes, target.bytes - at);
        auto copied = target.memory->copy_from(target.place.offset + at, source, offset + at, piece);
        if (copied) continue;
        // The error does not say which of the two devices is lost.
        std::byte probe;
        const bool is_readable = source.copy_out(offset + at, {&probe, 1}).has_value();
        scheduler_.post(
            [&devices = devices_, lost = is_readable ? job.to : DeviceIndex{job.gate->device}, error = copied.error()] {
                store_lock.assert_held();
                devices.report(lost, error);
            });
        return copied;
    }
    return {};
}

Status Mover::run(const Job& job) {
    Target target = TRY(allocate(job));
    std::shared_lock shared(job.gate->mutex, std::defer_lock);
    std::unique_lock alone(job.gate->mutex, std::defer_lock);
    uint32_t write_opens = 0;
    bool sealed = false;
    // Before and after the copy.
    auto check = [&]() -> Status {
        store_lock.assert_held();
        TRY(devices_.check(job.to));
        TRY(store_.check_move(*job.object, job.to, job.keep));
        TRY(store_.limits().check_device(*job.object, job.to, job.object->session_leases > 0));
        // The object has moved, or its size differs from the allocated one.
        if (job.object->extent == nullptr || job.object->size_bytes != target.bytes) {
            return fail(EBUSY, "the object was changed while it moved");
        }
        return {};
    };
    auto begin = [&]() -> Status {
        StoreLock lock(scheduler_.store_mutex());
        sealed = job.object->state == ObjectState::sealed;
        write_opens = job.object->write_opens;
        return check();
    };
    auto attempt = [&]() -> Status {
        TRY(begin());
        // The bytes of a sealed object cannot change, so readers may continue meanwhile.
        if (sealed) shared.lock();
        else alone.lock();
        TRY(begin());
        if (!job.gate->memory) return fail(EBUSY, "it was emptied while it moved");
        const auto source = job.gate->memory;
        TRY(copy(job, target, *source, job.gate->offset));
        if (shared.owns_lock()) shared.unlock();
        if (!alone.owns_lock()) alone.lock();
        StoreLock lock(scheduler_.store_mutex());
        TRY(check());
        if (job.gate->memory != source || job.object->write_opens != write_opens) {
            return fail(EBUSY, "the object was opened for writing while it moved");
        }
        if (target.place.extent == nullptr) {
            target.place = {store_.extents().add(target.need, target.memory), 0};
        }
        // Another place on the same device leaves it evicted, or not.
        const uint32_t evicted_from = job.to == job.object->device ? job.object->evicted_from : 0;
        store_.move(job.object, job.to, target.place, job.object->session_leases > 0, evicted_from);
        return {};
    };
    Status moved = attempt();
    if (alone.owns_lock()) alone.unlock();
    if (shared.owns_lock()) shared.unlock();
    if (!moved) give_back(job, target);
    return moved;
}

}  // namespace gshm::core

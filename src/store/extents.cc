#include "store/extents.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/limits.h"
#include "base/size.h"

namespace gshm::core {

void Extents::enlist(StoredExtent* extent, bool listed) {
    if (extent->closed) return;
    const std::pair entry{extent->slab->largest_free(), extent};
    auto set = [&](SlabGroup::ByRoom& by_room) {
        if (listed) by_room.insert(entry);
        else by_room.erase(entry);
    };
    SlabGroup& group = *extent->slab_group;
    if (!extent->is_read_only()) return set(group.by_room);
    set(group.read_only);
    for (SessionId writer : extent->writers) {
        auto& own = group.by_writer[writer];
        set(own);
        if (own.empty()) group.by_writer.erase(writer);
    }
}

void Extents::change_slab(StoredExtent* extent, auto change) {
    enlist(extent, false);
    change(*extent);
    enlist(extent, true);
}

// The size of a slab that only one writer will use. Other sessions cannot use its free bytes, so it is small relative
// to the slabs that the writer has.
uint64_t Extents::exclusive_bytes(const SlabGroup::ByRoom* own, const Writer& writer) {
    uint64_t total = 0;
    if (own != nullptr) {
        for (const auto& [room, slab] : *own) total += slab->size_bytes;
    }
    return std::clamp(std::max(total / 16, writer.batch_bytes), limits::kWriterSlabBytes, limits::kSlabBytesMax);
}

std::variant<Place, ExtentNeed> Extents::place_small(const SlabKey& key, uint64_t bytes, const DeviceInfo& device,
                                                     const std::optional<Writer>& writer) {
    auto found = slab_groups_.find(key);
    const SlabGroup* group = found == slab_groups_.end() ? nullptr : &found->second;
    const SlabGroup::ByRoom* own = group == nullptr ? nullptr : &group->read_only;
    if (own != nullptr && writer) {
        auto of_writer = group->by_writer.find(writer->session);
        own = of_writer == group->by_writer.end() ? nullptr : &of_writer->second;
    }
    // Slabs that other sessions cannot write to come first.
    for (const auto* by_room : {own, group == nullptr ? nullptr : &group->by_room}) {
        if (by_room == nullptr) continue;
        auto roomy = by_room->lower_bound({Slab::rounded(bytes), nullptr});
        if (roomy == by_room->end()) continue;
        Place place{roomy->second, 0};
        change_slab(place.extent, [&](StoredExtent& extent) { place.offset = *extent.slab->take(bytes); });
        return place;
    }
    uint64_t size = std::max(uint64_t{2} << 20, group == nullptr ? 0 : group->next_size_bytes);
    if (group != nullptr && writer && !group->read_only.empty()) size = exclusive_bytes(own, *writer);
    // A slab has room for at least two objects of this size.
    size = std::max(size, 2 * Slab::rounded(bytes));
    return ExtentNeed{key.device,
                      round_up(size, device.granularity_bytes),
                      round_up(Slab::rounded(bytes), device.granularity_bytes),
                      key.compressible,
                      key,
                      device.read_only_exports,
                      key.uid};
}

void Extents::add_writer(StoredExtent* extent, SessionId session) {
    change_slab(extent, [&](StoredExtent& changed) { changed.writers.push_back(session); });
}

void Extents::remove_writer(ExtentId id, SessionId session) {
    auto* extent = find(id);
    if (extent == nullptr) return;
    change_slab(extent, [&](StoredExtent& changed) { std::erase(changed.writers, session); });
}

void Extents::note_sealed(StoredExtent* extent) {
    if (extent->is_read_only() || !extent->protects) ++extent->sealed;
    else change_slab(extent, [](StoredExtent& changed) { ++changed.sealed; });
}

StoredExtent* Extents::add(const ExtentNeed& need, std::shared_ptr<Extent> memory) {
    auto extent = std::make_unique<StoredExtent>();
    auto* added = extent.get();
    added->id = ids_.take();
    added->key = keys_.take();
    added->device = need.device;
    added->size_bytes = memory->size();
    added->compressible = need.compressible;
    added->uid = need.uid;
    added->memory = std::move(memory);
    if (need.slab) {
        assert(added->memory->file() == nullptr);  // refresh() would set the size of each object in it from the file
        auto& group = slab_groups_[*need.slab];
        group.key = *need.slab;
        group.next_size_bytes = std::min(added->size_bytes * 2, limits::kSlabBytesMax);
        added->slab_group = &group;
        ++group.slabs;
        added->unmapped = need.slab->is_unmapped();
        added->protects = need.protects;
        added->slab.emplace(added->size_bytes);
        enlist(added, true);
    }
    extents_.emplace(added->id, std::move(extent));
    count(*added, need.uid);
    changed(added);
    return added;
}

Status Extents::check_descriptors(uid_t uid) const {
    const auto user = budgets_.user(uid);
    return user->is_full(Resource::descriptors) ? Status(std::unexpected(user->refusal(Resource::descriptors)))
                                                : Status();
}

void Extents::count(StoredExtent& extent, uid_t uid) {
    constexpr uint64_t kDescriptors = 2;  // for writing and for reading
    // Files are opened when they are used.
    if (extent.descriptors.amount() > 0 || extent.memory->file() != nullptr) return;
    extent.descriptors = {budgets_.user(uid), Resource::descriptors};
    extent.descriptors.add(kDescriptors);
}

void Extents::changed(StoredExtent* extent) {
    if (extent->unrecorded || recorder_ == nullptr) return;
    extent->unrecorded = true;
    recorder_->changed(*extent);
}

std::vector<StoredExtent*> Extents::all() const {
    std::vector<StoredExtent*> all;
    for (const auto& [id, extent] : extents_) all.push_back(extent.get());
    return all;
}

StoredExtent* Extents::find(ExtentId id) {
    auto found = extents_.find(id);
    return found == extents_.end() ? nullptr : found->second.get();
}

void Extents::close_slab(StoredExtent* extent) {
    if (extent->closed) return;
    enlist(extent, false);
    extent->closed = true;
    changed(extent);
}

void Extents::renew_id(StoredExtent* extent) {
    auto entry = extents_.extract(extent->id);
    entry.key() = extent->id = ids_.take();
    extents_.insert(std::move(entry));
    changed(extent);
}

void Extents::reach(StoredExtent* extent, SessionId session) {
    if (extent->reached_by == 0) extent->reached_by = session;
    else if (extent->reached_by != session) extent->reached_by_others = true;
}

void Extents::give_handle(StoredExtent* extent) {
    reach_anywhere(extent);
    if (std::exchange(extent->handle_given, true)) return;
    changed(extent);
}

void Extents::forget_handle(StoredExtent* extent) {
    if (!std::exchange(extent->handle_given, false)) return;
    changed(extent);
}

void Extents::show(StoredExtent* extent) {
    extent->shown_bytes = extent->size_bytes;
    changed(extent);
}

void Extents::detach(const Place& place, uint64_t bytes, bool sealed, uid_t uid) {
    auto* extent = place.extent;
    extent->uid = uid;
    assert(extent->objects > 0);
    --extent->objects;
    if (extent->slab_group == nullptr) return erase(extent);
    if (sealed) change_slab(extent, [](StoredExtent& changed) { --changed.sealed; });
    // One empty slab of a group is kept, so that creating and freeing one small object does not allocate each time. Not
    // one of files: the device is empty when all files are removed.
    bool kept = !extent->closed && !extent->spoilt && !extent->unmapped && extent->slab_group->by_room.size() == 1;
    if (extent->objects == 0 && !kept) return erase(extent);
    if (extent->objects == 0) keep_empty(extent);
    reclaimer_.zero(extent->device, extent->id, extent->memory, place.offset, Slab::rounded(bytes), uid);
}

void Extents::keep_empty(StoredExtent* extent) {
    // A user may have groups without number: one for each mode and set of directories.
    auto& kept = kept_empty_[extent->slab_group->key.uid];
    std::erase(kept, extent->id);
    kept.push_back(extent->id);
    if (kept.size() <= limits::kEmptySlabs) return;
    auto* oldest = find(kept.front());
    kept.erase(kept.begin());
    if (oldest != nullptr && oldest->objects == 0) erase(oldest);
}

void Extents::drop_if_unused(ExtentId id) {
    auto* extent = find(id);
    if (extent == nullptr || extent->objects > 0) return;
    if (extent->slab_group == nullptr || extent->slab_group->by_room.size() > 1) erase(extent);
}

void Extents::zeroed(ExtentId id, uint64_t offset, uint64_t bytes) {
    auto* extent = find(id);
    if (extent == nullptr) return;  // the extent was freed meanwhile
    change_slab(extent, [&](StoredExtent& changed) { changed.slab->give_back(offset, bytes); });
}

void Extents::not_zeroed(ExtentId id) {
    auto* extent = find(id);
    if (extent == nullptr) return;
    if (extent->objects == 0) return erase(extent);  // a new slab is zeroed as a whole
    extent->spoilt = true;
}

void Extents::trim(DeviceIndex device) {
    std::vector<StoredExtent*> empty;
    for (auto& [id, extent] : extents_) {
        if (extent->device == device && extent->slab_group != nullptr && extent->objects == 0)
            empty.push_back(extent.get());
    }
    for (auto* extent : empty) erase(extent);
}

void Extents::erase(StoredExtent* extent) {
    if (extent->slab_group != nullptr) {
        auto* group = extent->slab_group;
        enlist(extent, false);
        if (--group->slabs == 0) slab_groups_.erase(SlabKey(group->key));
    }
    if (recorder_ != nullptr) recorder_->erased(*extent);
    const FormerUse former{extent->uid, extent->slab_group == nullptr, extent->compressible, extent->reached_by,
                           extent->reached_by_others};
    reclaimer_.release(extent->device, std::move(extent->memory), former);
    extents_.erase(extent->id);
}

}  // namespace gshm::core

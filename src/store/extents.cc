#include "store/extents.h"

#include <algorithm>
#include <cassert>

#include "base/limits.h"
#include "base/size.h"

namespace gshm {

// Changes a slab while keeping its pool's order by room true.
void Extents::set_room(StoredExtent* extent, auto change) {
    if (extent->closed) return change(*extent->slab);
    auto& by_room = extent->pool->by_room;
    by_room.erase({extent->slab->largest_free(), extent});
    change(*extent->slab);
    by_room.emplace(extent->slab->largest_free(), extent);
}

std::variant<Place, ExtentNeed> Extents::place_small(const SlabKey& key, uint64_t bytes, uint64_t granularity) {
    auto pool = pools_.find(key);
    if (pool != pools_.end()) {
        auto roomy = pool->second.by_room.lower_bound({Slab::rounded(bytes), nullptr});
        if (roomy != pool->second.by_room.end()) {
            Place place{roomy->second, 0};
            set_room(place.extent, [&](Slab& slab) { place.offset = *slab.take(bytes); });
            return place;
        }
    }
    // A slab holds at least a few objects of the size that opens it.
    uint64_t size = pool == pools_.end() ? 0 : pool->second.next_size_bytes;
    size = std::max({size, uint64_t{2} << 20, 2 * Slab::rounded(bytes)});
    return ExtentNeed{key.device, round_up(size, granularity), round_up(Slab::rounded(bytes), granularity),
                      key.compressible, key};
}

StoredExtent* Extents::add(const ExtentNeed& need, std::shared_ptr<Extent> memory) {
    auto extent = std::make_unique<StoredExtent>();
    auto* added = extent.get();
    added->id = ids_.take();
    added->key = keys_.take();
    added->device = need.device;
    added->size_bytes = memory->size();
    added->compressible = need.compressible;
    added->memory = std::move(memory);
    if (need.slab) {
        auto& pool = pools_[*need.slab];
        pool.key = *need.slab;
        pool.next_size_bytes = std::min(added->size_bytes * 2, limits::kSlabBytesMax);
        added->pool = &pool;
        ++pool.slabs;
        added->slab.emplace(added->size_bytes);
        pool.by_room.emplace(added->slab->largest_free(), added);
    }
    extents_.emplace(added->id, std::move(extent));
    changed(added);
    return added;
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
    extent->pool->by_room.erase({extent->slab->largest_free(), extent});
    extent->closed = true;
    changed(extent);
}

void Extents::renew_id(StoredExtent* extent) {
    auto entry = extents_.extract(extent->id);
    entry.key() = extent->id = ids_.take();
    extents_.insert(std::move(entry));
    changed(extent);
}

void Extents::show(StoredExtent* extent) {
    extent->shown_bytes = extent->size_bytes;
    changed(extent);
}

void Extents::detach(const Place& place, uint64_t bytes) {
    auto* extent = place.extent;
    assert(extent->objects > 0);
    --extent->objects;
    if (extent->pool == nullptr) return erase(extent);
    // One empty slab of a kind is kept: making and dropping single small objects must not allocate every time.
    bool kept = !extent->closed && !extent->spoilt && extent->pool->by_room.size() == 1;
    if (extent->objects == 0 && !kept) return erase(extent);
    reclaimer_.zero(extent->device, extent->id, extent->memory, place.offset, Slab::rounded(bytes));
}

void Extents::drop_if_unused(ExtentId id) {
    auto* extent = find(id);
    if (extent == nullptr || extent->objects > 0) return;
    if (extent->pool == nullptr || extent->pool->by_room.size() > 1) erase(extent);
}

void Extents::zeroed(ExtentId id, uint64_t offset, uint64_t bytes) {
    auto* extent = find(id);
    if (extent == nullptr) return;  // the whole extent went meanwhile
    set_room(extent, [&](Slab& slab) { slab.give_back(offset, bytes); });
}

void Extents::not_zeroed(ExtentId id) {
    auto* extent = find(id);
    if (extent == nullptr) return;
    if (extent->objects == 0) return erase(extent);  // a new one is zeroed as a whole
    extent->spoilt = true;
}

void Extents::trim(DeviceIndex device) {
    std::vector<StoredExtent*> empty;
    for (auto& [id, extent] : extents_) {
        if (extent->device == device && extent->pool != nullptr && extent->objects == 0) empty.push_back(extent.get());
    }
    for (auto* extent : empty) erase(extent);
}

void Extents::erase(StoredExtent* extent) {
    if (extent->pool != nullptr) {
        auto* pool = extent->pool;
        pool->by_room.erase({extent->slab->largest_free(), extent});
        if (--pool->slabs == 0) pools_.erase(SlabKey(pool->key));
    }
    if (recorder_ != nullptr) recorder_->erased(*extent);
    reclaimer_.release(extent->device, std::move(extent->memory));
    extents_.erase(extent->id);
}

}  // namespace gshm

#include "client/pool/pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>
#include <utility>

#include "base/size.h"

namespace gshm::core::client {
namespace {

constexpr uint64_t kUnit = PoolBins::kUnit;
// Blocks of at least this size are cut from the upper end of a free block, so that small ones stay together at low
// addresses.
constexpr uint64_t kLargeBytes = uint64_t{1} << 20;
constexpr uint64_t kLargestSlab = uint64_t{1} << 30;  // unless a single allocation needs more
constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr size_t kMarksLooked = 32;      // from this number of marks on, a lane checks which are passed
constexpr uint64_t kTurnsUnlooked = 16;  // a check costs as much as a mark
constexpr size_t kMarks = 256;           // the maximum; then the last mark is moved

void set_start(PoolSlab& slab, const PoolBlock& block, bool used) {
    const uint64_t unit = (block.address - slab.address) / kUnit;
    if (used) slab.starts[unit / 64] |= uint64_t{1} << unit % 64;
    else slab.starts[unit / 64] &= ~(uint64_t{1} << unit % 64);
}

// The address of the last used block that starts at or before the unit; nullopt if there is none.
std::optional<uint64_t> start_before(const PoolSlab& slab, uint64_t unit) {
    uint64_t word = unit / 64;
    uint64_t bits = slab.starts[word] & (~uint64_t{0} >> (63 - unit % 64));
    while (bits == 0) {
        if (word == 0) return std::nullopt;
        bits = slab.starts[--word];
    }
    return slab.address + (word * 64 + static_cast<uint64_t>(63 - std::countl_zero(bits))) * kUnit;
}

bool is_unused_retired(const std::pair<const uint64_t, std::unique_ptr<PoolSlab>>& entry) {
    return entry.second->retired && entry.second->used_bytes == 0;
}

bool is_full(const Status& status) {
    return !status && (status.error().code == ENOSPC || status.error().code == ENOMEM);
}

}  // namespace

Pool::Pool(const Options& options, SlabSource& source, std::unique_ptr<Streams> streams)
    : options_(options), source_(source), streams_(std::move(streams)) {}

Pool::~Pool() {
    std::vector<uint64_t> addresses;
    {
        MutexLock lock(mutex_);
        (void)wait_for_all();  // a lost device does no work any more
        for (auto& [id, lane] : lanes_) {
            for (auto& marked : lane->marks) streams_->drop(marked.mark);
        }
        for (auto& [address, slab] : slabs_) addresses.push_back(address);
    }
    for (uint64_t address : addresses) (void)source_.give_back(address);
}

// ---- Free blocks ----

void Pool::list(PoolBlock* block, PoolBlock* before) {
    if (block->lane == nullptr) {
        ready_.add(block);
        return;
    }
    PoolLane& lane = *block->lane;
    lane.free.add(block);
    block->later = before;
    block->earlier = before != nullptr ? before->earlier : lane.last;
    (block->earlier != nullptr ? block->earlier->later : lane.first) = block;
    (block->later != nullptr ? block->later->earlier : lane.last) = block;
}

void Pool::unlist(PoolBlock* block) {
    if (block->lane == nullptr) {
        ready_.remove(block);
        return;
    }
    PoolLane& lane = *block->lane;
    lane.free.remove(block);
    (block->earlier != nullptr ? block->earlier->later : lane.first) = block->later;
    (block->later != nullptr ? block->later->earlier : lane.last) = block->earlier;
}

// Neither block is listed.
void Pool::join(PoolBlock* low, PoolBlock* high) {
    low->bytes += high->bytes;
    low->above = high->above;
    if (low->above != nullptr) low->above->below = low;
    stock_.give(high);
}

// Splits off the part above the first `bytes` bytes, with the same lane. Neither block is listed.
PoolBlock* Pool::split(PoolBlock* block, uint64_t bytes) {
    PoolBlock* rest = stock_.take();
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->slab = block->slab;
    rest->below = block;
    rest->above = block->above;
    if (rest->above != nullptr) rest->above->below = rest;
    rest->lane = block->lane;
    rest->turn = block->turn;
    block->above = rest;
    block->bytes = bytes;
    return rest;
}

// Frees the block. Until that turn has passed, only the lane may use it.
void Pool::release(PoolBlock* block, PoolLane* lane, uint64_t turn) {
    block->asked = 0;
    block->lane = lane;
    block->turn = turn;
    if (PoolBlock* below = block->below; below != nullptr && below->is_free() && below->lane == lane) {
        unlist(below);
        join(below, block);
        block = below;
        block->turn = turn;
    }
    if (PoolBlock* above = block->above; above != nullptr && above->is_free() && above->lane == lane) {
        unlist(above);
        join(block, above);
    }
    list(block);
}

// ---- Streams ----

PoolLane* Pool::find_lane(uint64_t id) {
    auto found = lanes_.find(id);
    return found == lanes_.end() ? nullptr : found->second.get();
}

Status Pool::mark(PoolLane& lane, void* stream) {
    if (lane.marks.size() >= kMarksLooked && lane.turn % kTurnsUnlooked == 0) look(lane);
    if (lane.marks.size() >= kMarks) {
        TRY(streams_->record(stream, lane.marks.back().mark));
        lane.marks.back().turn = ++lane.turn;
        return {};
    }
    lane.marks.push_back({lane.turn + 1, nullptr});
    auto recorded = streams_->record(stream);
    if (!recorded) {
        lane.marks.pop_back();
        return std::unexpected(std::move(recorded.error()));
    }
    lane.marks.back().mark = *recorded;
    ++lane.turn;
    return {};
}

void Pool::look(PoolLane& lane) {
    uint64_t passed = 0;
    while (!lane.marks.empty() && streams_->is_passed(lane.marks.front().mark)) {
        passed = lane.marks.front().turn;
        streams_->drop(lane.marks.front().mark);
        lane.marks.pop_front();
    }
    lane.passed = std::max(lane.passed, passed);
    while (lane.first != nullptr && lane.first->turn <= passed) {
        PoolBlock* block = lane.first;
        unlist(block);
        release(block, nullptr, 0);
    }
}

void Pool::look_at_all() {
    std::erase_if(lanes_, [&](auto& entry) NO_THREAD_SAFETY_ANALYSIS {
        look(*entry.second);
        return entry.second->marks.empty();  // then it has no blocks
    });
}

Status Pool::wait_for_all() {
    std::vector<Streams::Mark> marks;
    for (auto& [id, lane] : lanes_) {
        if (!lane->marks.empty()) marks.push_back(lane->marks.back().mark);
    }
    // Other threads may record these marks again, or reuse them. The wait then takes longer, but is never too short.
    mutex_.unlock();
    Status waited;
    for (auto* mark : marks) {
        if (auto passed = streams_->wait(mark); !passed && waited) waited = std::move(passed);
    }
    mutex_.lock();
    look_at_all();
    return waited;
}

void Pool::absorb_neighbours(PoolLane& lane) {
    for (PoolBlock* block = lane.first; block != nullptr; block = block->later) {
        PoolBlock* below = block->below;
        if (below != nullptr && below->is_free() && below->lane == nullptr) {
            unlist(below);
            PoolBlock* later = block->later;
            unlist(block);
            below->lane = &lane;
            below->turn = block->turn;
            join(below, block);
            block = below;
            list(block, later);
        }
        PoolBlock* above = block->above;
        if (above != nullptr && above->is_free() && above->lane == nullptr) {
            PoolBlock* later = block->later;
            unlist(above);
            unlist(block);
            join(block, above);
            list(block, later);
        }
    }
}

// ---- Allocating ----

// Without a wait: the better fit of a block freed by the same stream and a block that no stream uses.
PoolBlock* Pool::find_fit(const BlockRequest& wanted) {
    PoolBlock* ready = ready_.find(wanted.search);
    PoolLane* lane = wanted.any_stream ? nullptr : find_lane(wanted.lane);
    PoolBlock* own = lane != nullptr ? lane->free.find(wanted.search) : nullptr;
    if (own == nullptr || (ready != nullptr && ready->bytes < own->bytes)) return ready;
    return own;
}

// Null: a new slab is needed.
Result<PoolBlock*> Pool::find_elsewhere(const BlockRequest& wanted) {
    if (lanes_.empty()) return nullptr;
    look_at_all();
    if (PoolBlock* block = find_fit(wanted)) return block;
    if (wanted.any_stream) return nullptr;  // the caller would have to wait
    if (PoolLane* lane = find_lane(wanted.lane)) {
        absorb_neighbours(*lane);
        if (PoolBlock* block = lane->free.find(wanted.search)) return block;
    }
    PoolBlock* best = nullptr;
    for (auto& [id, lane] : lanes_) {
        PoolBlock* block = lane->free.find(wanted.search);
        if (block != nullptr && (best == nullptr || block->bytes < best->bytes)) best = block;
    }
    if (best == nullptr) return nullptr;
    auto behind = std::ranges::find_if(best->lane->marks, [&](auto& marked) { return marked.turn >= best->turn; });
    assert(behind != best->lane->marks.end());  // else the block would be free for all streams
    TRY(streams_->follow(wanted.stream, behind->mark));
    ++stats_.waits;
    return best;
}

// Returns the used part. The rest stays free.
PoolBlock* Pool::cut(PoolBlock* block, const BlockRequest& wanted) {
    PoolBlock* later = block->lane != nullptr ? block->later : nullptr;
    unlist(block);
    const bool large = wanted.bytes >= kLargeBytes;
    const uint64_t at =
        large ? align_down(block->end() - wanted.bytes, wanted.alignment) : align_up(block->address, wanted.alignment);
    if (at > block->address) {
        PoolBlock* rest = split(block, at - block->address);
        list(block, later);
        block = rest;
    }
    if (block->bytes > wanted.bytes) list(split(block, wanted.bytes), later);
    return block;
}

Result<void*> Pool::allocate(uint64_t bytes, uint64_t alignment, void* stream) {
    if (bytes == 0) return nullptr;
    if (alignment == 0) alignment = kAlignment;
    if (!std::has_single_bit(alignment) || alignment > kMostAlignment) {
        return fail(EINVAL, "an alignment of {}: powers of two up to {} are possible", alignment, kMostAlignment);
    }
    if (bytes > kMostBytes) return fail(ENOMEM, "{} bytes are more than any device has", bytes);
    BlockRequest wanted;
    wanted.alignment = std::max(alignment, kAlignment);
    wanted.bytes = align_up(bytes, kUnit);
    wanted.search = wanted.bytes + wanted.alignment - kAlignment;
    wanted.stream = stream;
    wanted.any_stream = streams_ == nullptr || stream == kNoStream;
    if (!wanted.any_stream) wanted.lane = TRY(streams_->identify(stream));

    MutexLock lock(mutex_);
    int attempts = 0;
    PoolBlock* block = nullptr;
    for (;;) {
        block = find_fit(wanted);
        if (block == nullptr) block = TRY(find_elsewhere(wanted));
        if (block != nullptr) break;
        if (growing_) lock.wait(grown_);
        else TRY(grow(wanted, &attempts));
    }
    block = cut(block, wanted);
    used_.emplace(block->address, block);
    block->asked = bytes;
    PoolSlab& slab = *block->slab;
    set_start(slab, *block, true);
    if (slab.used_bytes == 0) --unused_slabs_;
    slab.used_bytes += block->bytes;
    stats_.used_bytes += block->bytes;
    stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, stats_.used_bytes);
    ++stats_.allocations;
    return reinterpret_cast<void*>(block->address);
}

Status Pool::deallocate(void* memory, uint64_t bytes, void* stream) {
    if (memory == nullptr) return {};
    const bool ordered = streams_ != nullptr && stream != kNoStream;
    const uint64_t id = ordered ? TRY(streams_->identify(stream)) : 0;
    MutexLock lock(mutex_);
    auto found = used_.find(reinterpret_cast<uint64_t>(memory));
    if (found == used_.end()) {
        return fail(EINVAL, "{} was not allocated from this pool, or is free already", memory);
    }
    PoolBlock* block = found->second;
    if (bytes != 0 && bytes != block->asked) {
        return fail(EINVAL, "{} was allocated with {} bytes and cannot be freed with {}", memory, block->asked, bytes);
    }
    PoolLane* lane = nullptr;
    if (ordered) {
        lane = find_lane(id);
        if (lane == nullptr) {
            lane = lanes_.emplace(id, std::make_unique<PoolLane>()).first->second.get();
            lane->id = id;
        }
        // On failure the block stays allocated, since the time of its last use is unknown.
        TRY(mark(*lane, stream));
    }
    used_.erase(found);
    PoolSlab& slab = *block->slab;
    set_start(slab, *block, false);
    slab.used_bytes -= block->bytes;
    stats_.used_bytes -= block->bytes;
    --stats_.allocations;
    if (slab.retired) {
        block->asked = 0;
        if (lane != nullptr) slab.last_turns[id] = lane->turn;
        // A refused slab stays, and is given back later: the memory is free in any case.
        if (slab.used_bytes == 0) (void)give_back_retired();
        return {};
    }
    release(block, lane, lane != nullptr ? lane->turn : 0);
    if (slab.used_bytes == 0 && ++unused_slabs_ > kept_slabs_) give_back_surplus(&slab);
    return {};
}

std::optional<Pool::Place> Pool::find(const void* memory) {
    const auto address = reinterpret_cast<uint64_t>(memory);
    MutexLock lock(mutex_);
    auto next = slabs_.upper_bound(address);
    if (next == slabs_.begin()) return std::nullopt;
    const PoolSlab& slab = *std::prev(next)->second;
    if (address - slab.address >= slab.bytes) return std::nullopt;
    auto start = start_before(slab, (address - slab.address) / kUnit);
    if (!start) return std::nullopt;
    const PoolBlock& block = *used_.at(*start);
    if (address - block.address >= block.asked) return std::nullopt;
    return Place{slab.address, address - slab.address, block.asked - (address - block.address)};
}

Pool::Stats Pool::stats() {
    MutexLock lock(mutex_);
    return stats_;
}

// ---- Slabs ----

Status Pool::add_slab(uint64_t bytes) {
    auto slab = std::make_unique<PoolSlab>();
    slab->bytes = bytes;
    slab->starts.resize(bytes / kUnit / 64 + 1);
    PoolBlock* block = stock_.take();
    mutex_.unlock();
    auto made = source_.make(bytes);
    mutex_.lock();
    if (!made) {
        stock_.give(block);
        return std::unexpected(std::move(made.error()));
    }
    slab->address = *made;
    slab->first = block;
    block->address = *made;
    block->bytes = bytes;
    block->slab = slab.get();
    list(block);
    slabs_.emplace(*made, std::move(slab));
    ++unused_slabs_;
    ++stats_.slabs;
    refused_ = false;
    if (surplus_given_ > 0) {
        --surplus_given_;
        ++kept_slabs_;
    }
    return {};
}

// The slab size grows with the pool, within the limit, and is at least the wanted size.
Status Pool::try_to_grow(const BlockRequest& wanted) {
    const uint64_t unit = options_.granularity_bytes;
    const uint64_t least = round_up(wanted.search, unit);
    const uint64_t usual =
        round_up(std::max(options_.slab_bytes, std::min(stats_.reserved_bytes / 16, kLargestSlab)), unit);
    uint64_t room = ~uint64_t{0};
    if (options_.limit_bytes != 0) room = options_.limit_bytes - std::min(options_.limit_bytes, stats_.reserved_bytes);
    if (least > room) {
        return fail(ENOMEM, "{} bytes do not fit: the pool may have {} bytes, of which {} are in slabs and {} in use",
                    wanted.bytes, options_.limit_bytes, stats_.reserved_bytes, stats_.used_bytes);
    }
    for (uint64_t bytes = std::max(least, std::min(usual, room / unit * unit));;) {
        stats_.reserved_bytes += bytes;  // counted before it exists, so that the limit holds meanwhile
        auto added = add_slab(bytes);
        if (added) return {};
        stats_.reserved_bytes -= bytes;
        if (!is_full(added) || bytes == least) return added;
        bytes = std::max(least, round_up(bytes / 4, unit));
    }
}

Status Pool::grow(const BlockRequest& wanted, int* attempts) {
    struct Growing {
        Pool& pool;
        explicit Growing(Pool& of) NO_THREAD_SAFETY_ANALYSIS : pool(of) { pool.growing_ = true; }
        ~Growing() NO_THREAD_SAFETY_ANALYSIS {
            pool.growing_ = false;
            pool.grown_.notify_all();
        }
    };
    const Growing growing(*this);
    (void)give_back_retired();
    auto grown = try_to_grow(wanted);
    if (grown || !is_full(grown) || ++*attempts > 2) return grown;
    // First waits for pending work, after which blocks can be merged. Then gives back free slabs that are too small.
    if (*attempts == 1) (void)wait_for_all();
    else (void)give_back_unused(0);
    return {};
}

bool Pool::can_go(const PoolSlab& slab) const {
    return !slab.retired && slab.used_bytes == 0 && slab.first->bytes == slab.bytes && slab.first->lane == nullptr;
}

// A lane ends when all its marks are passed. A later one of the same stream counts from 0: the slab then stays longer, but
// is never given back too early.
bool Pool::is_passed(const PoolSlab& slab) {
    return std::ranges::all_of(slab.last_turns, [&](const auto& last) NO_THREAD_SAFETY_ANALYSIS {
        const PoolLane* lane = find_lane(last.first);
        return lane == nullptr || lane->marks.empty() || lane->passed >= last.second;
    });
}

void Pool::remove_slab(PoolSlab* slab) {
    if (!slab->retired) {
        unlist(slab->first);
        --unused_slabs_;
    }
    for (PoolBlock* block = slab->first; block != nullptr;) stock_.give(std::exchange(block, block->above));
    --stats_.slabs;
    slabs_.erase(slab->address);
}

Status Pool::give_back(PoolSlab* slab) {
    const uint64_t address = slab->address;
    const uint64_t bytes = slab->bytes;
    auto spare = std::make_unique<PoolSlab>();
    spare->address = address;
    spare->bytes = bytes;
    spare->starts.resize(slab->starts.size());
    spare->retired = slab->retired;
    remove_slab(slab);
    mutex_.unlock();
    auto given = source_.give_back(address);
    mutex_.lock();
    if (given) {
        stats_.reserved_bytes -= bytes;
        return {};
    }
    PoolBlock* block = stock_.take();
    block->address = address;
    block->bytes = bytes;
    block->slab = spare.get();
    spare->first = block;
    if (!spare->retired) {
        list(block);
        ++unused_slabs_;
    }
    slabs_.emplace(address, std::move(spare));
    ++stats_.slabs;
    refused_ = true;
    return given;
}

Status Pool::give_back_unused(uint64_t keep_bytes) {
    while (stats_.reserved_bytes > keep_bytes) {
        auto found =
            std::ranges::find_if(slabs_, [&](auto& entry) NO_THREAD_SAFETY_ANALYSIS { return can_go(*entry.second); });
        if (found == slabs_.end()) return {};
        TRY(give_back(found->second.get()));
    }
    return {};
}

Status Pool::give_back_retired() {
    if (std::ranges::none_of(slabs_, is_unused_retired)) return {};
    look_at_all();
    while (true) {
        auto found = std::ranges::find_if(slabs_, [&](auto& entry) NO_THREAD_SAFETY_ANALYSIS {
            return is_unused_retired(entry) && is_passed(*entry.second);
        });
        if (found == slabs_.end()) return {};
        TRY(give_back(found->second.get()));
    }
}

// Keeps the newest, which is the most likely to be used again.
void Pool::give_back_surplus(PoolSlab* newest) {
    if (refused_) return;
    look_at_all();
    for (auto& [address, slab] : slabs_) {
        if (slab.get() == newest || !can_go(*slab)) continue;
        if (give_back(slab.get())) ++surplus_given_;
        return;
    }
}

std::vector<uint64_t> Pool::retire() {
    MutexLock lock(mutex_);
    std::vector<uint64_t> addresses;
    for (auto& [address, slab] : slabs_) {
        if (!slab->retired && slab->used_bytes == 0) continue;
        addresses.push_back(address);
        if (slab->retired) continue;
        slab->retired = true;
        for (PoolBlock* block = slab->first; block != nullptr; block = block->above) {
            if (!block->is_free()) continue;
            unlist(block);
            if (block->lane == nullptr) continue;
            uint64_t& last = slab->last_turns[block->lane->id];
            last = std::max(last, block->turn);
        }
    }
    return addresses;
}

Status Pool::trim(uint64_t keep_bytes) {
    MutexLock lock(mutex_);
    kept_slabs_ = 1;
    surplus_given_ = 0;
    const bool has_retired = std::ranges::any_of(slabs_, is_unused_retired);
    if (unused_slabs_ == 0 && !has_retired) return {};
    Status waited = wait_for_all();
    TRY(give_back_retired());
    TRY(give_back_unused(keep_bytes));
    return waited;
}

}  // namespace gshm::core::client

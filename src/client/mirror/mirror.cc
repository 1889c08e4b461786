// gshm.h: mirrors. All devices share this code. They differ in whether the CPU can access the memory directly, which
// the extent reports, and in how a copy is made.
#include <cstring>
#include <map>

#include "base/log.h"
#include "client/api.h"
#include "client/mirror/pinned_staging.h"

using namespace gshm::core;
using namespace gshm::core::client;

struct gshm_mirror {
    uint64_t generation = fork_count();
    gshm_object* object = nullptr;  // held; may be gone in a forked child
    uint64_t offset = 0;            // in the object
    std::span<std::byte> memory;
    bool writable = false;
    void* stream = nullptr;
    // The source of the memory. If neither is set, it is the memory of the object.
    PinnedStaging::Block block;
    std::unique_ptr<std::byte[]> own;    // for copies through the daemon
    std::map<uint64_t, uint64_t> marks;  // disjoint ranges [begin, end)

    Status check_range(uint64_t at, uint64_t bytes) const {
        if (at <= memory.size() && bytes <= memory.size() - at) return {};
        return fail(EINVAL, "range {}+{} is outside of the mirror's {} bytes", at, bytes, memory.size());
    }
    Status check_writable() const {
        if (!writable) return fail(EACCES, "the mirror is for reading only");
        return gshm::core::client::check_writable(*object);
    }

    void mark(uint64_t at, uint64_t bytes);
    void unmark(uint64_t at, uint64_t bytes);
    // Writes back all marked ranges, if possible.
    Status flush();
    Status flush(uint64_t at, uint64_t bytes);
    Status load(uint64_t at, uint64_t bytes);

private:
    bool is_copy() const { return block.data != nullptr || own != nullptr; }
    Status begin_flush(uint64_t at, uint64_t bytes);
    Status finish(Status begun);
};

void gshm_mirror::mark(uint64_t at, uint64_t bytes) {
    if (bytes == 0) return;
    uint64_t end = at + bytes;
    auto next = marks.upper_bound(at);
    if (next != marks.begin() && std::prev(next)->second >= at) --next;
    while (next != marks.end() && next->first <= end) {
        at = std::min(at, next->first);
        end = std::max(end, next->second);
        next = marks.erase(next);
    }
    marks.emplace_hint(next, at, end);
}

void gshm_mirror::unmark(uint64_t at, uint64_t bytes) {
    if (bytes == 0) return;
    const uint64_t end = at + bytes;
    auto next = marks.upper_bound(at);
    if (next != marks.begin() && std::prev(next)->second > at) --next;
    while (next != marks.end() && next->first < end) {
        const auto [from, to] = *next;
        next = marks.erase(next);
        if (from < at) marks.emplace(from, at);
        if (to > end) marks.emplace(end, to);
    }
}

Status gshm_mirror::begin_flush(uint64_t at, uint64_t bytes) {
    if (!is_copy()) return {};
    auto piece = memory.subspan(at, bytes);
    if (auto* extent = object->extent()) return extent->begin_copy_in(object->offset + offset + at, piece, stream);
    return object->core->copy_in(object->id, object->key.epoch, offset + at, piece);
}

// Also after a failure: copies under way must end before the caller changes the memory, or before it is reused.
Status gshm_mirror::finish(Status begun) {
    if (!is_copy() || object->extent() == nullptr) return begun;
    auto finished = object->extent()->finish(stream);
    return begun ? finished : begun;
}

Status gshm_mirror::flush() {
    if (marks.empty()) return {};
    TRY(check_writable());
    Status begun;
    for (auto [from, to] : marks) {
        begun = begin_flush(from, to - from);
        if (!begun) break;
    }
    TRY(finish(std::move(begun)));
    marks.clear();
    return {};
}

Status gshm_mirror::flush(uint64_t at, uint64_t bytes) {
    TRY(check_writable());
    TRY(check_range(at, bytes));
    TRY(finish(begin_flush(at, bytes)));
    unmark(at, bytes);
    return {};
}

Status gshm_mirror::load(uint64_t at, uint64_t bytes) {
    TRY(check_range(at, bytes));
    if (is_copy()) {
        auto piece = memory.subspan(at, bytes);
        if (auto* extent = object->extent()) {
            TRY(finish(extent->begin_copy_out(object->offset + offset + at, piece, stream)));
        } else {
            TRY(object->core->copy_out(object->id, object->key.epoch, offset + at, piece));
        }
    }
    unmark(at, bytes);
    return {};
}

namespace {

Result<gshm_mirror_options> read_mirror_options(const gshm_mirror_options* options) {
    const auto chosen = TRY(read_options(options));
    TRY(check_flags(chosen.flags, GSHM_MIRROR_LOAD | GSHM_MIRROR_WRITE, "mirror"));
    TRY(check_argument(chosen.flags != 0, "a mirror must be loaded, written or both"));
    return chosen;
}

Result<std::unique_ptr<gshm_mirror>> make_mirror(gshm_object& object, const gshm_mirror_options& options) {
    TRY(check_range(object, options.offset, options.size_bytes));
    const uint64_t bytes = options.size_bytes != 0 ? options.size_bytes : object.size_bytes - options.offset;
    const bool writable = (options.flags & GSHM_MIRROR_WRITE) != 0;
    if (writable) TRY(check_writable(object));
    auto mirror = std::make_unique<gshm_mirror>();
    mirror->object = &object;
    mirror->offset = options.offset;
    mirror->writable = writable;
    mirror->stream = options.stream;
    Extent* extent = object.extent();
    if (extent == nullptr && object.key.extent != 0) {
        TRY(check_argument(options.stream == nullptr,
                           "the daemon copies for this handle, and cannot use streams of this process"));
        mirror->own = std::make_unique_for_overwrite<std::byte[]>(bytes);
        mirror->memory = {mirror->own.get(), bytes};
    } else if (bytes != 0 && extent->is_host_memory()) {
        mirror->memory = {reinterpret_cast<std::byte*>(extent->address() + object.offset + options.offset), bytes};
    } else if (bytes != 0) {
        mirror->block = TRY(PinnedStaging::instance().take(*object.local, bytes));
        mirror->memory = {mirror->block.data, bytes};
        // Programs that read on, to the end of a page say, must not see an earlier mirror.
        memset(mirror->block.data + bytes, 0, mirror->block.bytes - bytes);
    }
    return mirror;
}

Status check_use(const gshm_mirror* mirror) {
    TRY(check_argument(mirror != nullptr, "mirror is NULL"));
    return check_fork_count(mirror->generation);
}

template <typename Body>
int with_mirror(gshm_mirror* mirror, Body&& body) {
    return guarded([&]() -> Status {
        TRY(check_use(mirror));
        return body(*mirror);
    });
}

void give_memory_back(gshm_mirror& mirror) {
    if (mirror.block.data != nullptr) PinnedStaging::instance().give(mirror.block);
}

}  // namespace

extern "C" {

int gshm_mirror_create(gshm_object* object, const gshm_mirror_options* options, gshm_mirror** ret_mirror) noexcept {
    return with_object(object, [&](gshm_object& of) -> Status {
        TRY(check_argument(ret_mirror != nullptr, "ret_mirror is NULL"));
        const auto chosen = TRY(read_mirror_options(options));
        auto mirror = TRY(make_mirror(of, chosen));
        if ((chosen.flags & GSHM_MIRROR_LOAD) != 0) {
            if (auto loaded = mirror->load(0, mirror->memory.size()); !loaded) {
                give_memory_back(*mirror);
                return loaded;
            }
        }
        hold_object(of);
        *ret_mirror = mirror.release();
        return {};
    });
}

void* gshm_mirror_data(const gshm_mirror* mirror) noexcept {
    return mirror == nullptr ? nullptr : mirror->memory.data();
}

uint64_t gshm_mirror_size(const gshm_mirror* mirror) noexcept {
    return mirror == nullptr ? 0 : mirror->memory.size();
}

int gshm_mirror_mark(gshm_mirror* mirror, uint64_t offset, uint64_t bytes) noexcept {
    return with_mirror(mirror, [&](gshm_mirror& one) -> Status {
        TRY(one.check_range(offset, bytes));
        TRY(one.check_writable());
        one.mark(offset, bytes);
        return {};
    });
}

void gshm_mirror_unmark(gshm_mirror* mirror) noexcept {
    if (mirror != nullptr && mirror->generation == fork_count()) mirror->marks.clear();
}

int gshm_mirror_flush(gshm_mirror* mirror) noexcept {
    return with_mirror(mirror, [](gshm_mirror& one) { return one.flush(); });
}

int gshm_mirror_flush_range(gshm_mirror* mirror, uint64_t offset, uint64_t bytes) noexcept {
    return with_mirror(mirror, [&](gshm_mirror& one) { return one.flush(offset, bytes); });
}

int gshm_mirror_load(gshm_mirror* mirror, uint64_t offset, uint64_t bytes) noexcept {
    return with_mirror(mirror, [&](gshm_mirror& one) { return one.load(offset, bytes); });
}

int gshm_mirror_destroy(gshm_mirror* mirror) noexcept {
    if (mirror == nullptr) return 0;
    return guarded([&]() -> Status {
        std::unique_ptr<gshm_mirror> gone(mirror);
        TRY(check_use(mirror));  // in a forked child, its memory and its object are gone
        auto flushed = mirror->flush();
        if (!flushed) log_error("changes in a mirror are lost: {}", flushed.error().message);
        give_memory_back(*mirror);
        let_go_of_object(mirror->object);
        return flushed;
    });
}

void gshm_keep_pinned(uint64_t most_bytes) noexcept {
    PinnedStaging::instance().keep_at_most(most_bytes);
}

}  // extern "C"

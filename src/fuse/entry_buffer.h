// Directory entries in the kernel's format.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "fuse/kernel.h"

namespace gshm::core::fuse {

class EntryBuffer {
public:
    EntryBuffer(std::span<std::byte> space, bool with_attributes) : space_(space), with_attributes_(with_attributes) {}

    // False: no room.
    bool add(std::string_view name, uint64_t id, uint64_t next_offset, unsigned char type,
             const fuse_entry_out& entry) {
        size_t head = with_attributes_ ? sizeof(fuse_entry_out) : 0;
        size_t bytes = head + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name.size());
        if (bytes > space_.size() - used_) return false;
        std::byte* at = space_.data() + used_;
        memset(at, 0, bytes);
        if (with_attributes_) memcpy(at, &entry, sizeof entry);
        fuse_dirent out = {};
        out.ino = id;
        out.off = next_offset;
        out.namelen = static_cast<uint32_t>(name.size());
        out.type = type;
        memcpy(at + head, &out, FUSE_NAME_OFFSET);
        memcpy(at + head + FUSE_NAME_OFFSET, name.data(), name.size());
        used_ += bytes;
        return true;
    }
    std::span<const std::byte> bytes() const { return space_.first(used_); }

private:
    std::span<std::byte> space_;
    bool with_attributes_;
    size_t used_ = 0;
};

// Offsets in a listing: 0 is its beginning, "." and ".." have the offsets 1 and 2. The offset of any other entry is its
// position plus kDots. Positions descend during a listing: an entry that is added later has a higher position than all
// others, so that a listing does not reach it, and always ends.
inline constexpr uint64_t kDots = 2;
// Adds "." and ".." as far as they come after the offset. False: no room.
inline bool add_dots(EntryBuffer& buffer, uint64_t offset, uint64_t self, uint64_t parent) {
    constexpr unsigned char kDirectory = 4;  // DT_DIR
    const fuse_entry_out unknown = {};
    if (offset < 1 && !buffer.add(".", self, 1, kDirectory, unknown)) return false;
    return offset >= kDots || buffer.add("..", parent, kDots, kDirectory, unknown);
}
// The position below which a listing continues.
inline uint64_t listed_position(uint64_t offset) {
    return offset <= kDots ? UINT64_MAX : offset - kDots;
}

}  // namespace gshm::core::fuse

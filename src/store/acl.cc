#include "store/acl.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <endian.h>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/limits.h"

namespace gshm::core {
namespace {

constexpr uint32_t kVersion = 2;
constexpr size_t kEntryBytes = 8;
constexpr uint32_t kNoId = std::numeric_limits<uint32_t>::max();

bool has_id(AclTag tag) {
    return tag == AclTag::user || tag == AclTag::group;
}

bool is_tag(uint16_t tag) {
    switch (static_cast<AclTag>(tag)) {
        case AclTag::owner:
        case AclTag::user:
        case AclTag::owning_group:
        case AclTag::group:
        case AclTag::mask:
        case AclTag::other: return true;
    }
    return false;
}

const AclEntry* find(std::span<const AclEntry> entries, AclTag tag) {
    auto found = std::ranges::find(entries, tag, &AclEntry::tag);
    return found == entries.end() ? nullptr : &*found;
}

// The entry that is the mode's class of the group.
AclEntry& group_class(AclEntries& entries) {
    auto found = std::ranges::find(entries, AclTag::mask, &AclEntry::tag);
    if (found == entries.end()) found = std::ranges::find(entries, AclTag::owning_group, &AclEntry::tag);
    assert(found != entries.end());
    return *found;
}

Status check_count(size_t count) {
    if (count <= limits::kAclEntries) return {};
    return fail(E2BIG, "an ACL has at most {} entries", limits::kAclEntries);
}

// Sets the entries that the mode has too.
void set_mode(AclEntries& entries, uint32_t mode) {
    AclEntry& group = group_class(entries);
    for (AclEntry& entry : entries) {
        if (entry.tag == AclTag::owner) entry.rights = mode >> 6 & 7u;
        else if (entry.tag == AclTag::other) entry.rights = mode & 7u;
    }
    group.rights = mode >> 3 & 7u;
}

std::string digest_of(const AclEntries& entries) {
    const std::string bytes = encode_acl(entries);
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Status check_acl(std::span<const AclEntry> entries) {
    TRY(check_count(entries.size()));
    auto bad = [](std::string_view what) { return fail(EINVAL, "the ACL {}", what); };
    size_t owners = 0;
    size_t owning_groups = 0;
    size_t masks = 0;
    size_t others = 0;
    bool names = false;
    AclTag last = AclTag::owner;
    for (const AclEntry& entry : entries) {
        if (!is_tag(static_cast<uint16_t>(entry.tag))) return bad("has an entry of an unknown kind");
        if ((entry.rights & ~7u) != 0) return bad("has rights other than read, write and execute");
        if (entry.tag < last) return bad("is not in order");
        last = entry.tag;
        if (has_id(entry.tag)) {
            if (entry.id == kNoId) return bad("has an entry without a user or group");
            names = true;
        } else if (entry.id != 0) {
            return bad("has an id in an entry that takes none");
        }
        owners += entry.tag == AclTag::owner;
        owning_groups += entry.tag == AclTag::owning_group;
        masks += entry.tag == AclTag::mask;
        others += entry.tag == AclTag::other;
    }
    if (owners != 1 || owning_groups != 1 || others != 1) {
        return bad("must have one entry for the owner, one for the owning group and one for others");
    }
    if (masks > 1 || (names && masks == 0)) return bad("must have one mask");
    return {};
}

AclEntries acl_of_mode(uint32_t mode) {
    auto rights = [&](unsigned shift) { return static_cast<uint16_t>(mode >> shift & 7u); };
    return {{AclTag::owner, rights(6), 0}, {AclTag::owning_group, rights(3), 0}, {AclTag::other, rights(0), 0}};
}

Result<AclEntries> complete_acl(AclEntries entries, uint32_t mode) {
    if (entries.empty()) return entries;
    for (const AclEntry& entry : acl_of_mode(mode)) {
        if (find(entries, entry.tag) == nullptr) entries.push_back(entry);
    }
    unsigned most = 0;
    bool names = false;
    for (const AclEntry& entry : entries) {
        names |= has_id(entry.tag);
        if (has_id(entry.tag) || entry.tag == AclTag::owning_group) most |= entry.rights;
    }
    if (names && find(entries, AclTag::mask) == nullptr) {
        entries.push_back({AclTag::mask, static_cast<uint16_t>(most), 0});
    }
    std::ranges::sort(entries, {}, [](const AclEntry& entry) { return std::pair(entry.tag, entry.id); });
    auto twice = std::ranges::adjacent_find(
        entries, [](const AclEntry& a, const AclEntry& b) { return a.tag == b.tag && a.id == b.id; });
    if (twice != entries.end()) return fail(EINVAL, "the ACL has an entry twice");
    TRY(check_acl(entries));
    return entries;
}

std::string encode_acl(std::span<const AclEntry> entries) {
    std::string bytes;
    bytes.reserve(sizeof kVersion + entries.size() * kEntryBytes);
    auto put = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(htole32(kVersion));
    for (const AclEntry& entry : entries) {
        put(htole16(static_cast<uint16_t>(entry.tag)));
        put(htole16(entry.rights));
        put(htole32(has_id(entry.tag) ? entry.id : kNoId));
    }
    return bytes;
}

Result<AclEntries> decode_acl(std::string_view bytes) {
    auto take = [&]<typename T>(T) {
        T value = 0;
        memcpy(&value, bytes.data(), sizeof value);
        bytes.remove_prefix(sizeof value);
        return value;
    };
    if (bytes.size() < sizeof kVersion) return fail(EINVAL, "an ACL has at least {} bytes", sizeof kVersion);
    if (le32toh(take(uint32_t{})) != kVersion) return fail(EOPNOTSUPP, "an ACL of an unknown version");
    if (bytes.size() % kEntryBytes != 0) return fail(EINVAL, "an ACL of {} bytes", bytes.size());
    AclEntries entries;
    TRY(check_count(bytes.size() / kEntryBytes));
    while (!bytes.empty()) {
        const uint16_t tag = le16toh(take(uint16_t{}));
        const uint16_t rights = le16toh(take(uint16_t{}));
        const uint32_t id = le32toh(take(uint32_t{}));
        if (!is_tag(tag)) return fail(EINVAL, "an ACL with an entry of an unknown kind");
        const auto known = static_cast<AclTag>(tag);
        entries.push_back({known, rights, has_id(known) ? id : 0});
    }
    if (!entries.empty()) TRY(check_acl(entries));
    return entries;
}

Acl::Acl(AclTable& table, AclEntries entries)
    : table_(table),
      entries_(std::move(entries)),
      mask_(rights_of(AclTag::mask).value_or(7)),
      digest_(digest_of(entries_)) {}

std::optional<uint16_t> Acl::rights_of(AclTag tag) const {
    const AclEntry* entry = find(entries_, tag);
    return entry == nullptr ? std::nullopt : std::optional(entry->rights);
}

bool Acl::permits(const Credentials& who, gid_t group, unsigned rights) const {
    bool in_group = false;
    for (const AclEntry& entry : entries_) {
        switch (entry.tag) {
            case AclTag::owner:
            case AclTag::mask: break;
            case AclTag::user:
                if (entry.id == who.uid) return (entry.rights & mask_ & rights) == rights;
                break;
            case AclTag::owning_group:
            case AclTag::group:
                if (!who.in_group(entry.tag == AclTag::group ? entry.id : group)) break;
                in_group = true;
                if ((entry.rights & rights) == rights) return (mask_ & rights) == rights;
                break;
            case AclTag::other: return !in_group && (entry.rights & rights) == rights;
        }
    }
    return false;
}

void AclPointer::add() const {
    ++acl_->references_;
}

void AclPointer::drop() {
    if (--acl_->references_ == 0) acl_->table_.erase(acl_);
}

std::shared_ptr<AclTable> make_acl_table() {
    return std::make_shared<AclTable>();
}

AclPointer AclTable::intern(AclEntries entries) {
    if (entries.empty()) return {};
    auto made = std::unique_ptr<Acl>(new Acl(*this, std::move(entries)));
    auto [begin, end] = acls_.equal_range(made->digest());
    auto same = std::find_if(begin, end, [&](const auto& acl) { return acl.second->entries_ == made->entries_; });
    if (same == end) {
        std::string digest = made->digest();
        same = acls_.emplace(std::move(digest), std::move(made));
    }
    ++same->second->references_;
    return AclPointer(same->second.get());
}

void AclTable::erase(Acl* acl) {
    auto [begin, end] = acls_.equal_range(acl->digest());
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == acl; });
    assert(found != end);
    acls_.erase(found);
}

bool is_mode_only(std::span<const AclEntry> entries) {
    return std::ranges::none_of(entries,
                                [](const AclEntry& entry) { return has_id(entry.tag) || entry.tag == AclTag::mask; });
}

uint32_t mode_for_acl(std::span<const AclEntry> entries, uint32_t mode) {
    auto rights = [&](AclTag tag) { return find(entries, tag); };
    const AclEntry* group = rights(AclTag::mask);
    if (group == nullptr) group = rights(AclTag::owning_group);
    const AclEntry* owner = rights(AclTag::owner);
    const AclEntry* other = rights(AclTag::other);
    if (owner == nullptr || group == nullptr || other == nullptr) return mode;
    return (mode & ~0777u) | static_cast<uint32_t>(owner->rights << 6 | group->rights << 3 | other->rights);
}

uint32_t mode_without_acl(std::span<const AclEntry> entries, uint32_t mode) {
    const AclEntry* limit = find(entries, AclTag::mask);
    const unsigned mask = limit == nullptr ? 7 : limit->rights;
    unsigned users = 7;  // rights that all single users have
    unsigned groups = 7;
    unsigned owning_group = 0;
    unsigned other = 0;
    for (const AclEntry& entry : entries) {
        switch (entry.tag) {
            case AclTag::user: users &= entry.rights & mask; break;
            case AclTag::group: groups &= entry.rights & mask; break;
            case AclTag::owning_group: owning_group = entry.rights & mask; break;
            case AclTag::other: other = entry.rights; break;
            case AclTag::owner:
            case AclTag::mask: break;
        }
    }
    return (mode & ~077u) | (owning_group & users) << 3 | (other & users & groups);
}

InheritedRights inherit_rights(AclTable& table, const AclPointer& from, uint32_t mode, uint32_t umask,
                               bool is_directory) {
    if (!from) return {mode & ~(umask & 0777), {}, {}};
    AclEntries entries = from->entries();
    // The rights that were asked for limit those of the default ACL.
    const uint32_t allowed = mode_for_acl(entries, 0) & mode;
    set_mode(entries, allowed);
    InheritedRights rights;
    rights.mode = (mode & ~0777u) | allowed;
    if (!is_mode_only(entries)) rights.access = table.intern(std::move(entries));
    if (is_directory) rights.inherited = from;
    return rights;
}

AclPointer acl_for_mode(AclTable& table, const AclPointer& acl, uint32_t mode) {
    if (!acl || mode_for_acl(acl->entries(), mode) == mode) return acl;
    AclEntries entries = acl->entries();
    set_mode(entries, mode);
    return table.intern(std::move(entries));
}

}  // namespace gshm::core

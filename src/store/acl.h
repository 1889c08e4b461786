// Access control lists as in POSIX.1e and Linux: rights of single users and groups besides those of the mode. The
// entries for the owner, the mask (without one: the owning group) and others have the rights of the mode at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "store/acl_pointer.h"
#include "store/credentials.h"

namespace gshm::core {

// Values as in gshm.h and in linux/posix_acl.h.
enum class AclTag : uint16_t { owner = 1, user = 2, owning_group = 4, group = 8, mask = 16, other = 32 };

struct AclEntry {
    AclTag tag = AclTag::owner;
    uint16_t rights = 0;  // Right
    uint32_t id = 0;      // of a user or group; else 0

    auto operator<=>(const AclEntry&) const = default;
};

using AclEntries = std::vector<AclEntry>;

// The access ACL of a node decides who may use it. The default ACL of a directory is inherited by its new entries.
enum class AclKind : uint8_t { access = 1, inherited = 2 };

// EINVAL unless the entries are in the order of AclTag, with one owner, owning_group and other, and one mask if there
// are users or groups. E2BIG: too many.
Status check_acl(std::span<const AclEntry> entries);
// Sorts the entries, and adds those that are missing: a mask that limits nothing, the rest from the mode. EINVAL: an
// entry occurs twice.
Result<AclEntries> complete_acl(AclEntries entries, uint32_t mode);
// The entries of a mode.
AclEntries acl_of_mode(uint32_t mode);

// The value of the attributes system.posix_acl_access and system.posix_acl_default. EINVAL, EOPNOTSUPP (another
// version) or E2BIG for bytes that the kernel would not write.
std::string encode_acl(std::span<const AclEntry> entries);
Result<AclEntries> decode_acl(std::string_view bytes);

// Immutable, and shared by all nodes with equal entries.
class Acl {
public:
    const AclEntries& entries() const { return entries_; }
    uint64_t bytes() const { return entries_.size() * sizeof(AclEntry); }
    // A hash of the entries in text, for the keys of slabs. Other entries with the same hash would have to be made on
    // purpose, by the user who gives the rights to both.
    const std::string& digest() const { return digest_; }
    // As in the kernel, for a user who is neither root nor the owner, and a mode with rights of the group.
    bool permits(const Credentials& who, gid_t group, unsigned rights) const;
    std::optional<uint16_t> rights_of(AclTag tag) const;

private:
    friend class AclTable;
    friend class AclPointer;
    Acl(AclTable& table, AclEntries entries);

    AclTable& table_;
    uint64_t references_ = 0;
    AclEntries entries_;
    unsigned mask_ = 7;
    std::string digest_;
};

class AclTable {
public:
    // Null for no entries. They are valid.
    AclPointer intern(AclEntries entries);
    size_t count() const { return acls_.size(); }

private:
    friend class AclPointer;
    void erase(Acl* acl);

    std::unordered_multimap<std::string, std::unique_ptr<Acl>> acls_;  // by digest
};

// What a new node gets from a directory.
struct InheritedRights {
    uint32_t mode = 0;
    AclPointer access;
    AclPointer inherited;  // of a directory
};
// `mode` is what was asked for; without a default ACL the umask is taken off.
InheritedRights inherit_rights(AclTable& table, const AclPointer& from, uint32_t mode, uint32_t umask,
                               bool is_directory);
// The modes that are asked for if the maker names none: a default ACL then decides alone.
inline uint32_t default_object_mode(const AclPointer& from) {
    return from ? 0666 : 0600;
}
inline uint32_t default_directory_mode(const AclPointer& from) {
    return from ? 0777 : 0755;
}
// An access ACL after a change of the mode; null stays null.
AclPointer acl_for_mode(AclTable& table, const AclPointer& acl, uint32_t mode);
// The mode with the rights of an access ACL.
uint32_t mode_for_acl(std::span<const AclEntry> entries, uint32_t mode);
// A mode that permits no user more than the ACL does, for a kernel that does not know the ACL.
uint32_t mode_without_acl(std::span<const AclEntry> entries, uint32_t mode);
// The entries say no more than a mode does.
bool is_mode_only(std::span<const AclEntry> entries);

}  // namespace gshm::core

// The operations on nodes and their names, common to the library and the mount. For the library's requests the store
// (store.h) resolves names and checks rights first; for the mount (files.h) the kernel has done both. Errors and times
// are those of the system calls. Not thread-safe, as all of the store.
#pragma once

#include <optional>
#include <string_view>

#include "store/tree.h"

namespace gshm::core {

class Store;
enum class AclKind : uint8_t;
struct AclEntry;
struct InheritedRights;

// The owner of a new node, and its mode (07777).
struct Maker {
    uid_t uid = 0;
    gid_t gid = 0;
    uint32_t mode = 0;
    // Group and mode are exact: neither the directory's group (S_ISGID) nor its default ACL is inherited.
    bool keeps_group = false;
    uint32_t umask = 0;  // without effect in a directory with a default ACL
};

struct NodeChanges {
    std::optional<uint32_t> mode;
    std::optional<uid_t> uid;
    std::optional<gid_t> gid;
    std::optional<int64_t> accessed_ns;
    std::optional<int64_t> modified_ns;
    bool keep = false;  // an object outlives its session, a directory its last entry
};

class Operations {
public:
    explicit Operations(Store& store) : store_(store) {}

    // ---- names ----
    // Makes an object without a name. The caller gives it memory and a name, or frees it.
    Object* make_object(const Directory& parent, const Maker& maker);
    Result<Directory*> make_directory(Directory& parent, std::string_view name, const Maker& maker);
    Result<Node*> make_symlink(Directory& parent, std::string_view name, const Maker& maker, std::string_view target);
    Result<Node*> make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                               uint32_t number);
    // Adds a name, which may be the first one.
    Status link(Node& node, Directory& parent, std::string_view name);
    enum class Remove { any, directory, other };
    Status unlink(Directory& parent, std::string_view name, Remove what);
    // flags as of renameat2(2).
    Status rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name, unsigned flags);
    // Gives the node a name, in place of `link`, or in addition to its names if that is null. Without `replace` the
    // name must be free.
    Status put(Node& node, Link* link, Directory& to, std::string_view name, bool replace);
    static Status check_free(const Directory& parent, std::string_view name);
    // EDQUOT: the user has no room for a further node, with so many bytes of names and attributes.
    Status check_room(uid_t uid, size_t more_bytes);
    // The group of a new entry of the directory.
    static gid_t group_in(const Directory& parent, const Maker& maker) {
        return gives_group(parent) && !maker.keeps_group ? parent.gid : maker.gid;
    }

    // The mode and the ACLs of a new entry of the directory.
    InheritedRights rights_in(const Directory& parent, const Maker& maker, bool is_directory);

    // The most bytes of ACLs that it gets from there.
    static size_t acl_bytes_in(const Directory& parent, const Maker& maker, bool is_directory);

    // ---- metadata ----
    // An access ACL follows a change of the mode.
    void change(Node& node, const NodeChanges& changes);
    // Replaces an ACL by entries for which check_acl() is true; none: removes it. The mode follows an access ACL.
    // drop_set_group: as chmod(2) by a user who is not in the group. EACCES: a default ACL of what is no directory.
    // EOPNOTSUPP: a symbolic link.
    Status set_acl(Node& node, AclKind kind, std::vector<AclEntry> entries, bool drop_set_group);
    // The mode after a change of the owner, as with chown(2).
    static uint32_t mode_for_new_owner(const Node& node);
    // flags as of setxattr(2). ERANGE: the name is too long; E2BIG: the value is; ENOSPC: the attributes are in total.
    Status set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags);
    Status remove_attribute(Node& node, std::string_view name);
    static Result<std::string_view> attribute(const Node& node, std::string_view name);
    // Applies the same limits to the attributes of a new object.
    static Status check_attributes(const Attributes& attributes);

    // EBUSY while there are more write leases than `own`, the number of the caller's.
    Status seal(Object& object, uint32_t own);
    static Status check_sealable(const Object& object, uint32_t own);
    // Applies the other effects of sealing, after the state was set.
    void note_sealed(Object& object);

private:
    template <typename Made>
    Made* own(Made* node, const Directory& parent, const Maker& maker);

    Store& store_;
};

}  // namespace gshm::core

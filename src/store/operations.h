// Everything that can be done to nodes and their names, once for all ways. The library's requests (store.h) resolve names
// and check rights in front of it; for the mount (files.h) the kernel has done both. Errors and times are those of the
// system calls. Not thread-safe, as all of the store.
#pragma once

#include <optional>
#include <string_view>

#include "store/tree.h"

namespace gshm::core {

class Store;

// The owner of a new node, and its mode (07777).
struct Maker {
    uid_t uid = 0;
    gid_t gid = 0;
    uint32_t mode = 0;
    bool keeps_group = false;  // also in a directory that gives its group to its entries (S_ISGID)
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
    // Without a name. The caller gives it memory and a name, or frees it.
    Object* make_object(const Directory& parent, const Maker& maker);
    Result<Directory*> make_directory(Directory& parent, std::string_view name, const Maker& maker);
    Result<Node*> make_symlink(Directory& parent, std::string_view name, const Maker& maker, std::string_view target);
    Result<Node*> make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                               uint32_t number);
    // A further name, or the first one.
    Status link(Node& node, Directory& parent, std::string_view name);
    enum class Remove { any, directory, other };
    Status unlink(Directory& parent, std::string_view name, Remove what);
    // flags as of renameat2(2).
    Status rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name, unsigned flags);
    // The node gets that name in place of `link`, or in addition to what it has if that is null. Without `replace` the
    // name must be free.
    Status put(Node& node, Link* link, Directory& to, std::string_view name, bool replace);
    static Status check_free(const Directory& parent, std::string_view name);
    // Group that a new entry of the directory gets.
    static gid_t group_in(const Directory& parent, const Maker& maker) {
        return gives_group(parent) && !maker.keeps_group ? parent.gid : maker.gid;
    }

    // ---- what is known of a node ----
    void change(Node& node, const NodeChanges& changes);
    // The mode that is left when the node gets another owner, as chown(2) has it.
    static uint32_t mode_for_new_owner(const Node& node);
    // flags as of setxattr(2). ERANGE: the name is too long; E2BIG: the value is; ENOSPC: all attributes together are.
    Status set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags);
    Status remove_attribute(Node& node, std::string_view name);
    static Result<std::string_view> attribute(const Node& node, std::string_view name);
    // The same limits for attributes that are given with a new object.
    static Status check_attributes(const Attributes& attributes);

    // EBUSY while there are more leases for writing than `own`, which are the caller's.
    Status seal(Object& object, uint32_t own);
    static Status check_sealable(const Object& object, uint32_t own);
    // After its state was set: all else that sealing changes.
    void note_sealed(Object& object);

private:
    template <typename Made>
    Made* own(Made* node, const Directory& parent, const Maker& maker);

    Store& store_;
};

}  // namespace gshm::core

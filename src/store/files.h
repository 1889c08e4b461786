// The store as a file system, for the mount: the kernel has looked up the nodes and checked the rights. Not
// thread-safe, as all of the store.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "store/store.h"

namespace gshm::core {

using FileId = uint64_t;

class Files {
public:
    static constexpr NodeId kRoot = 1;

    explicit Files(Store& store) : store_(store) {}

    // ---- nodes ----
    Node* find(NodeId id) const { return store_.nodes_.find(id); }
    std::vector<Node*> all() const { return store_.nodes_.all(); }
    size_t node_count() const { return store_.nodes_.count(); }
    // Null: no such entry.
    static Node* child(const Directory& parent, std::string_view name);
    // Called when the last reference to the node may have ended.
    void free_if_unused(Node& node) {
        if (!node.is_referenced()) store_.free_if_unused(&node);
    }

    // ---- names and nodes: the store's operations. The kernel is not notified of changes that it requested ----
    Result<Object*> make_object(Directory& parent, std::string_view name, const Maker& maker);
    // Makes an object without a name. It is freed when it is closed, unless it is linked before.
    Result<Object*> make_unnamed(Directory& parent, const Maker& maker);
    Result<Directory*> make_directory(Directory& parent, std::string_view name, const Maker& maker);
    Result<Node*> make_symlink(Directory& parent, std::string_view name, const Maker& maker, std::string_view target);
    Result<Node*> make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                               uint32_t number);
    Status link(Node& node, Directory& parent, std::string_view name);
    Status unlink(Directory& parent, std::string_view name);
    Status remove_directory(Directory& parent, std::string_view name);
    // flags as of renameat2(2).
    Status rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name, unsigned flags);

    // ---- metadata ----
    void change(Node& node, const NodeChanges& changes);
    std::optional<FileStatus> refresh(Object& object) { return store_.refresh(&object); }
    // Called after any other change to the node, so that it is recorded.
    void changed(Node& node) { store_.nodes_.changed(&node); }
    // Called after bytes were read or written.
    void accessed(Node& node);
    void modified(Object& object);
    Status set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags);
    Status remove_attribute(Node& node, std::string_view name);
    // See Operations::set_acl().
    Status set_acl(Node& node, AclKind kind, std::vector<AclEntry> entries, bool drop_set_group);
    Status seal(Object& object);

    // ---- open files ----
    // `request` is the kernel's id of the request. If an earlier daemon has opened a file for it, that file is
    // returned.
    Result<FileId> open(Object& object, Access access, const Credentials& who, uint64_t request);
    // Null: not open, or a file of another node. Requests name both, so that a late request does not reach another
    // file.
    Object* opened(NodeId node, FileId file) const;
    std::optional<Access> access_of(FileId file) const;
    void close(FileId file);
    // Closes all files, when the kernel has dropped them.
    void close_all();

    // ---- memory ----
    // Keeps the object alive while a thread works on it.
    void pin(Object& object, Access access) { store_.pin(&object, access); }
    void unpin(Object& object, Access access) { store_.unpin(&object, access); }
    static std::shared_ptr<Gate> gate(Object& object) { return Store::gate(&object); }
    // No session maps it.
    static bool is_unshared(const Object& object) { return object.session_leases == 0; }
    // Called with the object's gate held exclusively. The object's bytes are in that memory now; null: it has none.
    // Sessions that map the old memory keep it.
    void replace_memory(Object& object, std::shared_ptr<Extent> memory, uint64_t size_bytes) {
        store_.replace_memory(&object, std::move(memory), size_bytes, !is_unshared(object));
    }
    void set_size(Object& object, uint64_t size_bytes);

    // ---- backing files, which the kernel identifies by its own ids ----
    // `close` closes a backing file in the kernel; null: no mount.
    void set_close_backing(std::function<void(int32_t)> close) { store_.close_backing_ = std::move(close); }
    // Records the backing file of the object's present memory.
    Status note_backing(const Object& object, int32_t id);
    // Closes the node's backing file in the kernel. Also done when the object's memory is freed.
    void drop_backing(NodeId node) { store_.drop_backing(node); }
    // 0: none.
    int32_t backing_of(NodeId node) const;
    bool has_backing(int32_t id) const;
    // Closes backing files of an earlier daemon that it was closing, or that belong to former memory of their objects.
    // Called before another one is opened: until then the kernel has not reused their ids.
    void drop_former_backing();
    // Called when the kernel has closed all of them.
    void forget_all_backing();

    Store& store() { return store_; }
    void set_observer(TreeObserver* observer) { store_.tree_.set_observer(observer); }

private:
    // A directory that the mount has changed is no longer removed with its last entry.
    Operations& in(Directory& directory) {
        directory.implicit = false;
        return store_.operations_;
    }

    Store& store_;
};

}  // namespace gshm::core

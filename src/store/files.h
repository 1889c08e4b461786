// The store as a file system: the kernel has looked up the nodes and checked the rights. Not thread-safe, as all of the
// store.
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
    // Null: there is none.
    static Node* child(const Directory& parent, std::string_view name);
    // To be called when the node may not be referenced any more.
    void free_if_unused(Node& node) {
        if (!node.is_referenced()) store_.free_if_unused(&node);
    }

    // ---- names and nodes: the store's operations. The kernel is not told what it has asked for itself ----
    Result<Object*> make_object(Directory& parent, std::string_view name, const Maker& maker);
    // Without a name; it goes when it is closed, unless it is linked first.
    Object* make_unnamed(Directory& parent, const Maker& maker);
    Result<Directory*> make_directory(Directory& parent, std::string_view name, const Maker& maker);
    Result<Node*> make_symlink(Directory& parent, std::string_view name, const Maker& maker, std::string_view target);
    Result<Node*> make_special(Directory& parent, std::string_view name, const Maker& maker, uint32_t type,
                               uint32_t number);
    Status link(Node& node, Directory& parent, std::string_view name);
    Status unlink(Directory& parent, std::string_view name);
    Status remove_directory(Directory& parent, std::string_view name);
    // flags as renameat2(2).
    Status rename(Directory& from, std::string_view name, Directory& to, std::string_view new_name, unsigned flags);

    // ---- what is known of a node ----
    void change(Node& node, const NodeChanges& changes);
    std::optional<FileStatus> refresh(Object& object) { return store_.refresh(&object); }
    // To be called when something else about it was changed here.
    void changed(Node& node) { store_.nodes_.changed(&node); }
    // Bytes were read or written.
    void accessed(Node& node);
    void modified(Object& object);
    Status set_attribute(Node& node, std::string_view name, std::string_view value, unsigned flags);
    Status remove_attribute(Node& node, std::string_view name);
    Status seal(Object& object);

    // ---- open files ----
    // request: the kernel's number of what opens it. If it was opened by that already, this is the same file again.
    Result<FileId> open(Object& object, Access access, const Credentials& who, uint64_t request);
    // Null: it is not open, or is another node's. Every request names both, and a late one must not reach what others have.
    Object* opened(NodeId node, FileId file) const;
    std::optional<Access> access_of(FileId file) const;
    void close(FileId file);
    // Closes all, as when the kernel has let go of them.
    void close_all();

    // ---- memory ----
    // Keeps the object while a thread works on it.
    void pin(Object& object, Access access) { store_.pin(&object, access); }
    void unpin(Object& object, Access access) { store_.unpin(&object, access); }
    static std::shared_ptr<Gate> gate(Object& object) { return Store::gate(&object); }
    // No session maps it.
    static bool is_unshared(const Object& object) { return object.session_leases == 0; }
    // For whoever holds the object's gate alone: its bytes are in that memory now; null: it has none. Sessions that
    // map what it had before keep that.
    void replace_memory(Object& object, std::shared_ptr<Extent> memory, uint64_t size_bytes) {
        store_.replace_memory(&object, std::move(memory), size_bytes, !is_unshared(object));
    }
    void set_size(Object& object, uint64_t size_bytes);

    // ---- backing files, which the kernel knows by numbers of its own ----
    // Closes one when it is dropped; null: there is no mount.
    void set_close_backing(std::function<void(int32_t)> close) { store_.close_backing_ = std::move(close); }
    // Of the memory that the object has now.
    Status note_backing(const Object& object, int32_t id);
    // Has the kernel close it. Also done when the object's memory is freed.
    void drop_backing(NodeId node) { store_.drop_backing(node); }
    // 0: none.
    int32_t backing_of(NodeId node) const;
    bool has_backing(int32_t id) const;
    // Those of an earlier daemon that are to be closed, or are not of the memory that their objects have. To be called
    // before another is opened: until then the kernel has given none of these numbers away.
    void drop_former_backing();
    // The kernel has closed them all.
    void forget_all_backing();

    Store& store() { return store_; }
    void set_observer(TreeObserver* observer) { store_.tree_.set_observer(observer); }

private:
    // A directory that is used by a file system's means does not vanish by itself.
    Operations& in(Directory& directory) {
        directory.implicit = false;
        return store_.operations_;
    }

    Store& store_;
};

}  // namespace gshm::core

// Names: the tree of directories, and the rights in it.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "store/credentials.h"
#include "store/node.h"

namespace gshm::core {

enum Right : unsigned { kRightExecute = 1, kRightWrite = 2, kRightRead = 4 };

bool is_permitted(const Node& node, const Credentials& who, unsigned rights);
// New entries of the directory get its group, as with mkdir(2).
bool gives_group(const Directory& directory);

// Told of changes that the mount did not make, so that it can notify the kernel.
class TreeObserver {
public:
    virtual ~TreeObserver() = default;
    // An entry was added; an entry of the node was removed.
    virtual void entry_added(const Directory& parent, std::string_view name) = 0;
    virtual void entry_removed(const Directory& parent, std::string_view name, const Node& node) = 0;
    // Its times, links or state have changed.
    virtual void node_changed(const Node& node) = 0;
};

// Told of every change of names, by the library or the mount. Called during the change: it may read the store, and
// changes nothing.
class NameListener {
public:
    virtual ~NameListener() = default;
    // The link is about to lose its name; because the ttl of its object has passed; or to the link that is added or moved
    // next.
    virtual void removing(const Link& link) = 0;
    virtual void expiring(const Link& link) { removing(link); }
    virtual void replacing(const Link& link) = 0;
    // The link has got a name.
    virtual void added(const Link& link) = 0;
    // The link is about to get that name instead of its own; it has got it. All names below a directory change with it.
    virtual void moving(const Link& link, const Directory& parent, std::string_view name) = 0;
    virtual void moved(const Link& link) = 0;
    virtual void exchanging(const Link& a, const Link& b) = 0;
    virtual void exchanged(const Link& a, const Link& b) = 0;
    virtual void sealed(const Object& object) = 0;
};

// Not thread-safe.
class Tree {
public:
    // The root directory belongs to root_owner and has the mode of /tmp: all users make entries, and remove their own.
    Tree(const Clock& clock, const Credentials& root_owner, Nodes& nodes);

    // ---- by path, with the rights of `who` ----
    // The node of a path, "" being the root. EACCES if a directory of the path may not be searched. Symbolic links are
    // followed inside of the store; EXDEV if one leads out of it. EACCES for a link of another user in a directory like
    // /tmp.
    enum class Last { follow, keep };
    // An entry that was looked up, whether it exists or not. While no step and no right changes, the path leads to the
    // same node.
    struct Step {
        NodeId directory = 0;
        std::string name;
        auto operator<=>(const Step&) const = default;
    };
    Result<Node*> find(const Credentials& who, std::string_view path, Last last,
                       std::vector<Step>* ret_steps = nullptr) const;
    // Prefetches for a later lookup: first the slot of the path, in a second call the node.
    void fetch(std::string_view path, bool node) const;
    // The device for new objects in the deepest directory of the path that exists and that `who` may search.
    std::optional<DeviceIndex> device_of(const Credentials& who, std::string_view path) const;
    // Whether all directories above one of its names may be searched. False: also if it has no name.
    static bool has_way_to(const Credentials& who, const Node& node);

    // The part of a path that exists, and the rest.
    struct Spot {
        Directory* parent;      // the last directory that exists
        std::string_view rest;  // below it: the missing directories and the last part
    };
    // The spot of a free name that `who` may create. EEXIST if it is taken.
    Result<Spot> find_free(const Credentials& who, std::string_view path) const;
    // The spot of a name that `who` may give to the node (null: a new one), in place of `link` unless that is null.
    // With `replace` the name may be taken, by an entry that `who` may remove; else EEXIST.
    Result<Spot> find_target(const Credentials& who, const Node* node, const Link* link, std::string_view path,
                             bool replace) const;
    // The link of a path, which `who` may remove.
    Result<Link*> find_removable(const Credentials& who, std::string_view path) const;
    // Null: the name is free.
    static Link* entry_at(const Spot& spot);
    // Makes the missing directories, owned by `who`, and sets ret_name to the last part.
    Directory* make_way(const Credentials& who, const Spot& spot, std::string_view* ret_name);
    // Removes all names of a node without a check of rights, to reclaim it.
    void detach(Node* node);

    // ---- by directory and name; the caller has checked the rights ----
    // `cookie` is the position in listings: that of the link that had the name before. 0: the last.
    void insert(Directory* parent, std::string_view name, Node* node, uint64_t cookie = 0) {
        Link* link = node->new_link();
        hook(link, parent, name, cookie);
        report(*node);
        tell([&](NameListener& listener) { listener.added(*link); });
    }
    // replaced: the link that is inserted or moved next gets the name.
    enum class Removal { plain, expired, replaced };
    void remove(Link* link, Removal why = Removal::plain);
    // Gives the link that name, which must be free. `cookie` as for insert(), but 0 keeps the position in the same
    // directory.
    void move(Link* link, Directory* parent, std::string_view name, uint64_t cookie = 0);
    void exchange(Link* a, Link* b);
    // Removes the directory, and those above it, if they are implicit and empty.
    void prune(Directory* directory);
    // The mount makes its own changes under a Quiet, so that they are not reported to it.
    void set_observer(TreeObserver* observer) { observer_ = observer; }
    class Quiet {
    public:
        explicit Quiet(Tree& tree) : tree_(tree), observer_(std::exchange(tree.observer_, nullptr)) {}
        ~Quiet() { tree_.observer_ = observer_; }

    private:
        Tree& tree_;
        TreeObserver* observer_;
    };
    void report(const Node& node) const {
        if (observer_ != nullptr) observer_->node_changed(node);
    }
    // A listener may remove itself when it is called.
    void add_listener(NameListener* listener) { listeners_.push_back(listener); }
    void remove_listener(NameListener* listener) { std::erase(listeners_, listener); }
    bool has_listener() const { return !listeners_.empty(); }
    void report_sealed(const Object& object) const {
        tell([&](NameListener& listener) { listener.sealed(object); });
    }

    // A string that is equal for all directories that the same users can reach: owners, modes and ACLs of the
    // directories of the path that not all users may search.
    static std::string reach(const Directory& directory);
    // The same for the directory that make_way() will return.
    std::string reach_of_new(const Credentials& who, const Spot& spot) const;
    static std::string path_of(const Node& node);
    static std::string path_of(const Link& link);
    // The directory is the ancestor, or below it.
    static bool is_inside(const Directory& directory, const Node& ancestor);

    const Directory& root() const { return *root_; }
    Directory& root() { return *root_; }

private:
    friend class Restorer;
    Result<Node*> walk(const Credentials& who, Directory* from, std::string_view path, Last last,
                       std::vector<Step>* ret_steps) const;
    template <typename Call>
    void tell(const Call& call) const {
        for (size_t i = listeners_.size(); i-- > 0;) call(*listeners_[i]);  // backwards: a listener may remove itself
    }
    Result<Spot> find_spot(const Credentials& who, std::string_view path) const;
    Status check_removable(const Credentials& who, const Link& link) const;
    void hook(Link* link, Directory* parent, std::string_view name, uint64_t cookie);
    void unhook(Link* link);
    void touch(Directory* directory);
    // Of a directory that make_way() makes.
    struct WayRights;
    WayRights way_rights(const Credentials& who, gid_t group, uint32_t mode, const AclPointer& inherited) const;

    const Clock& clock_;
    Nodes& nodes_;
    Directory* root_;
    TreeObserver* observer_ = nullptr;
    std::vector<NameListener*> listeners_;
};

}  // namespace gshm::core

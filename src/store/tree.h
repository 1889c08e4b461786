// Names: directories and what is in them, and who may do what there.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "store/credentials.h"
#include "store/node.h"

namespace gshm::core {

enum Right : unsigned { kRightExecute = 1, kRightWrite = 2, kRightRead = 4 };

bool is_permitted(const Node& node, const Credentials& who, unsigned rights);
// Entries of the directory get its group, as with mkdir(2).
bool gives_group(const Directory& directory);

// Learns of changes that were not made by the mount, so that the kernel can be told.
class TreeObserver {
public:
    virtual ~TreeObserver() = default;
    // The directory has a name more, or one less, which stood for the node.
    virtual void entry_added(const Directory& parent, std::string_view name) = 0;
    virtual void entry_removed(const Directory& parent, std::string_view name, const Node& node) = 0;
    // Its times, links or state are others.
    virtual void node_changed(const Node& node) = 0;
};

// Learns of every change of names, whoever makes it, for as long as somebody wants to know. Called in the midst of the
// change: it may look, and changes nothing.
class NameListener {
public:
    virtual ~NameListener() = default;
    // The link is about to lose its name; or about to lose it to the link that is added or moved next.
    virtual void removing(const Link& link) = 0;
    virtual void replacing(const Link& link) = 0;
    // It has got a name.
    virtual void added(const Link& link) = 0;
    // It is about to get that name instead of its own, and has got it. Of a directory: with all that is below it.
    virtual void moving(const Link& link, const Directory& parent, std::string_view name) = 0;
    virtual void moved(const Link& link) = 0;
    virtual void exchanging(const Link& a, const Link& b) = 0;
    virtual void exchanged(const Link& a, const Link& b) = 0;
    virtual void sealed(const Object& object) = 0;
};

// Not thread-safe.
class Tree {
public:
    // The root directory belongs to root_owner and is like /tmp: everyone makes entries, each removes their own.
    Tree(const Clock& clock, const Credentials& root_owner, Nodes& nodes);

    // ---- by path, with the rights of somebody ----
    // The node of a path, "" being the root. EACCES where a directory on the way may not be searched. Symbolic links
    // are followed inside of the store; EXDEV if one leads out of it.
    enum class Last { follow, keep };
    // An entry that was looked up on the way, whether it was there or not: while none of them changes, nor a right, the
    // path leads to the same.
    struct Step {
        NodeId directory = 0;
        std::string name;
        auto operator<=>(const Step&) const = default;
    };
    Result<Node*> find(const Credentials& who, std::string_view path, Last last,
                       std::vector<Step>* ret_steps = nullptr) const;
    // A hint that the path is going to be looked up: first its slot, in a second call its node.
    void fetch(std::string_view path, bool node) const;
    // What the deepest directory on the way that exists says of the device for new objects.
    std::optional<DeviceIndex> device_of(std::string_view path) const;
    // EACCES unless all directories above one of its names may be searched; ENOENT if it has no name.
    Status check_way_to(const Credentials& who, const Node& node) const;

    // Where a path leads, as far as it does.
    struct Spot {
        Directory* parent;      // the last directory that exists
        std::string_view rest;  // below it: the last part, with the directories before it that are missing
    };
    // The spot of a name that is free and that `who` may give. EEXIST if it is taken.
    Result<Spot> find_free(const Credentials& who, std::string_view path) const;
    // The spot of a name that `who` may give to the node (null: one that is yet to be made) in place of `link`, if that
    // is not null. With `replace` the name may be taken, by an entry that `who` may remove; else EEXIST.
    Result<Spot> find_target(const Credentials& who, const Node* node, const Link* link, std::string_view path,
                             bool replace) const;
    // The name of a path, which `who` may take away.
    Result<Link*> find_removable(const Credentials& who, std::string_view path) const;
    // Null: nothing has the name.
    static Link* entry_at(const Spot& spot);
    // Makes the directories that are missing, belonging to `who`, and sets ret_name to the last part.
    Directory* make_way(const Credentials& who, const Spot& spot, std::string_view* ret_name);
    // Takes an object's names whatever its rights; for reclaiming.
    void detach(Node* node);

    // ---- by directory and name, for whoever has seen to the rights ----
    void insert(Directory* parent, std::string_view name, Node* node) {
        Link* link = node->new_link();
        hook(link, parent, name);
        report(*node);
        tell([&](NameListener& listener) { listener.added(*link); });
    }
    // replaced: what is inserted or moved next gets the name.
    void remove(Link* link, bool replaced = false);
    // The link becomes that name, which must be free.
    void move(Link* link, Directory* parent, std::string_view name);
    void exchange(Link* a, Link* b);
    // Removes the directory, and those above it, if they were made on the way to an object and are empty now.
    void prune(Directory* directory);
    // The mount's own changes are not reported to it.
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
    // Without a listener names change at no cost for it. A listener may remove itself when it is called.
    void add_listener(NameListener* listener) { listeners_.push_back(listener); }
    void remove_listener(NameListener* listener) { std::erase(listeners_, listener); }
    bool has_listener() const { return !listeners_.empty(); }
    void report_sealed(const Object& object) const {
        tell([&](NameListener& listener) { listener.sealed(object); });
    }

    // One string for all places that the same people can reach: the directories on the way that not everyone may
    // search, with their owners and modes.
    static std::string reach(const Directory& directory);
    static std::string path_of(const Node& node);
    static std::string path_of(const Link& link);
    // It is the ancestor, or below it.
    static bool is_inside(const Directory& directory, const Node& ancestor);

    const Directory& root() const { return *root_; }
    Directory& root() { return *root_; }

private:
    friend class Restorer;
    Result<Node*> walk(const Credentials& who, Directory* from, std::string_view path, Last last,
                       std::vector<Step>* ret_steps) const;
    template <typename Call>
    void tell(const Call& call) const {
        for (size_t i = listeners_.size(); i-- > 0;) call(*listeners_[i]);  // those behind have heard of it
    }
    Result<Spot> find_spot(const Credentials& who, std::string_view path) const;
    Status check_removable(const Credentials& who, const Link& link) const;
    void hook(Link* link, Directory* parent, std::string_view name);
    void unhook(Link* link);
    void touch(Directory* directory);

    const Clock& clock_;
    Nodes& nodes_;
    Directory* root_;
    TreeObserver* observer_ = nullptr;
    std::vector<NameListener*> listeners_;
};

}  // namespace gshm::core

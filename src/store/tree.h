// Names: directories and what is in them, and who may do what there.
#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "store/credentials.h"
#include "store/node.h"

namespace gshm {

enum Right : unsigned { kRightExecute = 1, kRightWrite = 2, kRightRead = 4 };

bool is_permitted(const Node& node, const Credentials& who, unsigned rights);

// Owns the directories; objects are owned by the store, and only linked here. Not thread-safe.
class Tree {
public:
    // The root directory belongs to root_owner and is like /tmp: everyone makes entries, each removes their own.
    Tree(const Clock& clock, const Credentials& root_owner, std::function<NodeId()> next_id);

    // The node of a path, "" being the root. EACCES where a directory on the way may not be searched.
    Result<Node*> find(const Credentials& who, std::string_view path) const;
    // A hint that the path is going to be looked up: first its slot, in a second call its node.
    void fetch(std::string_view path, bool node) const;
    // EACCES unless every directory above the node may be searched; ENOENT if it has no name.
    Status check_way_to(const Credentials& who, const Node& node) const;

    // Fails as link() would, but changes nothing: so that no memory is allocated for a name that cannot be had.
    // Sets ret_reach, if asked for, to what reach() will say of the new node's place.
    Status check_link(const Credentials& who, std::string_view path, std::string* ret_reach) const;
    // Gives a node without one a name. Directories that are missing on the way are made, belonging to `who`.
    Status link(const Credentials& who, std::string_view path, Node* node);
    // Takes the name from the object and returns it. EISDIR for directories.
    Result<Node*> unlink(const Credentials& who, std::string_view path);
    // Takes an object's name whatever its rights; for reclaiming.
    void detach(Node* node);
    // Atomic. The object that was replaced, if any, is returned without a name.
    Result<Node*> rename(const Credentials& who, std::string_view from, std::string_view to, bool replace);

    // One string for all places that the same people can reach: the directories on the way that not everyone may
    // search, with their owners and modes.
    static std::string reach(const Directory& directory);
    static std::string path_of(const Node& node);

    const Directory& root() const { return *root_; }

private:
    struct Spot {
        Directory* parent;       // the last directory that exists
        std::string_view rest;   // what is missing below it: one part, or directories and a part
    };
    Result<Spot> find_spot(const Credentials& who, std::string_view path) const;
    Status check_removable(const Credentials& who, const Node& node) const;
    Directory* make_directories(const Credentials& who, const Spot& spot, std::string_view* ret_name);
    void insert(Directory* parent, std::string_view name, Node* node);
    void remove(Node* node);
    void prune(Directory* directory);

    const Clock& clock_;
    std::function<NodeId()> next_id_;
    std::unique_ptr<Directory> root_;
    std::unordered_map<NodeId, std::unique_ptr<Directory>> directories_;
};

}  // namespace gshm

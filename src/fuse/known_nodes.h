// The kernel's knowledge of nodes: how often it was told of each, and what it may believe of it. Kept with the node, so that
// a lookup finds it without another table. Reached only under the store lock, through the nodes.
#pragma once

#include "store/files.h"

namespace gshm::core::fuse {

// Of a node that the kernel was told of at least once.
struct KnownNode final : NodeReference {
    uint64_t lookups = 0;         // that the kernel was told of and has not forgotten
    bool known_before = false;    // the kernel may know it from an earlier daemon
    bool uncounted = false;       // an earlier daemon has told the kernel of it; how often is unknown
    // Of an object:
    bool remembered = false;      // the kernel was told to believe what it knows of it
    bool forgotten_open = false;  // the kernel knew nothing of it, but a file had not been closed yet
    bool kept_empty = false;      // an empty file that keeps its memory for a while
    bool leaving_slab = false;    // it is being given memory of its own, so that the kernel can have that

    bool is_held() const override { return lookups > 0 || known_before; }
};

// Null: the kernel was never told of it.
inline KnownNode* find_known(const Node& node) {
    return static_cast<KnownNode*>(node.reference.get());
}
// Made if there is none yet.
KnownNode& known(Node& node);
inline bool is_known(const Node& node) {
    return node.is_referenced();
}
// Whether to tell the kernel of changes: an answer may be on its way to a caller while the kernel says that it knows nothing.
// Of a node whose lookups nobody has counted there is no telling.
inline bool may_be_known(const Node& node) {
    const KnownNode* found = find_known(node);
    return found != nullptr && (found->is_held() || found->uncounted);
}
// The mount goes on with a node of an earlier daemon: see Restorer::finish().
void restore_known(Node& node);

class KnownNodes {
public:
    explicit KnownNodes(Files& files) : files_(files) {}

    // The kernel learns of the node.
    static void hold(Node& node) { ++known(node).lookups; }
    // It did not learn of it after all.
    void unhold(NodeId id);
    // It forgets that many lookups. False: an earlier daemon has told it of the node, too, and it may be another inode
    // that it forgets than the one it has now. It is to be asked; see is_unknown().
    bool forget(NodeId id, uint64_t lookups);
    // Asked when it had been told so many times, it knew nothing of the node.
    void is_unknown(NodeId id, uint64_t lookups);
    void forget_all();
    // 0: the kernel was never told of it, or there is no such node.
    uint64_t lookups(NodeId id) const;

private:
    Files& files_;
};

}  // namespace gshm::core::fuse

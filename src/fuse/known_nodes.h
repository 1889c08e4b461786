// The kernel's references to nodes: lookup counts, and the validity of cached attributes. Kept with the node, so that a
// lookup needs no other table. Used only under the store lock, through the nodes.
#pragma once

#include "store/files.h"

namespace gshm::core::fuse {

// The state of a node that the kernel has looked up at least once.
struct KnownNode final : NodeReference {
    uint64_t lookups = 0;       // number of lookups that the kernel has not forgotten
    bool known_before = false;  // the kernel may know it from an earlier daemon
    bool uncounted = false;     // an earlier daemon has answered lookups; their number is unknown
    // Of an object:
    bool remembered = false;      // the kernel may cache its attributes
    bool forgotten_open = false;  // the kernel did not know it, but a file was not closed yet
    bool kept_empty = false;      // an empty file that keeps its memory for a while
    bool leaving_slab = false;    // it is being moved into a file of its own, for passthrough

    bool is_held() const override { return lookups > 0 || known_before; }
};

// Null: the kernel has never looked it up.
inline KnownNode* find_known(const Node& node) {
    return static_cast<KnownNode*>(node.reference.get());
}
// Created if there is none yet.
KnownNode& known(Node& node);
inline bool is_known(const Node& node) {
    return node.is_referenced();
}
// Whether the kernel is notified of changes. A node with an unknown number of lookups may always be known: an answer
// may be on its way while the kernel reports that it does not know the node.
inline bool may_be_known(const Node& node) {
    const KnownNode* found = find_known(node);
    return found != nullptr && (found->is_held() || found->uncounted);
}
// For a node of an earlier daemon whose mount continues: see Restorer::finish().
void restore_known(Node& node);

class KnownNodes {
public:
    explicit KnownNodes(Files& files) : files_(files) {}

    // Counts a lookup.
    static void hold(Node& node) { ++known(node).lookups; }
    // Undoes hold(), if the kernel did not get the answer.
    void unhold(NodeId id);
    // The kernel forgets that many lookups. False: an earlier daemon has answered lookups, too, and the forgotten inode
    // may not be the present one. The kernel must be asked; see is_unknown().
    bool forget(NodeId id, uint64_t lookups);
    // The kernel did not know the node. It was asked when there were that many lookups.
    void is_unknown(NodeId id, uint64_t lookups);
    void forget_all();
    // 0: no lookups, or no such node.
    uint64_t lookups(NodeId id) const;

private:
    Files& files_;
};

}  // namespace gshm::core::fuse

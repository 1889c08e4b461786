#include "fuse/known_nodes.h"

#include <algorithm>

namespace gshm::core::fuse {

KnownNode& known(Node& node) {
    if (!node.reference) node.reference = std::make_unique<KnownNode>();
    return *find_known(node);
}

void restore_known(Node& node) {
    KnownNode& restored = known(node);
    restored.known_before = restored.uncounted = true;
    restored.remembered = true;  // unknown; at worst one notice is superfluous
}

void KnownNodes::unhold(NodeId id) {
    Node* node = files_.find(id);
    KnownNode* found = node == nullptr ? nullptr : find_known(*node);
    if (found == nullptr || found->lookups == 0) return;
    --found->lookups;
    files_.free_if_unused(*node);
}

bool KnownNodes::forget(NodeId id, uint64_t lookups) {
    Node* node = files_.find(id);
    KnownNode* found = node == nullptr ? nullptr : find_known(*node);
    if (found == nullptr) return true;
    if (found->uncounted) return false;
    found->lookups -= std::min(lookups, found->lookups);
    files_.free_if_unused(*node);
    return true;
}

void KnownNodes::is_unknown(NodeId id, uint64_t lookups) {
    Node* node = files_.find(id);
    KnownNode* found = node == nullptr ? nullptr : find_known(*node);
    if (found == nullptr) return;
    found->known_before = false;
    auto* object = as_object(node);
    // Lookups after the question are known to the kernel, which will forget them later. An open file is about to be
    // closed, since the kernel's requests may be reordered, or was opened just now.
    if (object != nullptr && object->open_files > 0) found->forgotten_open = true;
    else if (found->lookups == lookups) found->lookups = 0;
    files_.free_if_unused(*node);
}

void KnownNodes::forget_all() {
    for (Node* node : files_.all()) {
        // The reference stays, since a request under way may use it.
        if (KnownNode* found = find_known(*node)) {
            found->lookups = 0;
            found->known_before = found->uncounted = false;
        }
        if (node->links == 0) files_.free_if_unused(*node);
    }
}

uint64_t KnownNodes::lookups(NodeId id) const {
    Node* node = files_.find(id);
    const KnownNode* found = node == nullptr ? nullptr : find_known(*node);
    return found == nullptr ? 0 : found->lookups;
}

}  // namespace gshm::core::fuse

// New names, in lost+found/, for nodes and memory whose names a damaged catalog has lost.
#include <algorithm>
#include <unordered_set>

#include "store/restore.h"

namespace gshm::core {
namespace {

constexpr const char* kLostAndFound = "lost+found";

bool is_zero(Extent& memory, uint64_t offset, uint64_t bytes) {
    std::vector<std::byte> block(std::min<uint64_t>(bytes, 1 << 20));
    for (uint64_t done = 0; done < bytes; done += block.size()) {
        auto piece = std::span(block).first(std::min<uint64_t>(block.size(), bytes - done));
        if (!memory.copy_out(offset + done, piece)) return false;
        if (std::ranges::any_of(piece, [](std::byte byte) { return byte != std::byte{0}; })) return false;
    }
    return true;
}

}  // namespace

void Restorer::put_in_lost_and_found(Node* node, const std::string& name) {
    Tree& tree = store_.tree_;
    if (lost_and_found_ == nullptr) {
        Link* there = tree.root().children.find(kLostAndFound);
        if (there != nullptr) lost_and_found_ = as_directory(there->node);
        if (lost_and_found_ == nullptr) {
            if (there != nullptr) tree.remove(there);
            lost_and_found_ = store_.nodes_.make<Directory>();
            lost_and_found_->created_ns = lost_and_found_->accessed_ns = store_.clock_.now_ns();
            lost_and_found_->modified_ns = lost_and_found_->changed_ns = lost_and_found_->created_ns;
            tree.insert(&tree.root(), kLostAndFound, lost_and_found_);
        }
        lost_and_found_->mode = 0700;
        // Owned by the owner of the root directory: under an ordinary user's daemon that user must have access.
        lost_and_found_->uid = tree.root().uid;
        lost_and_found_->gid = tree.root().gid;
    }
    std::string unused = name;
    for (int i = 2; lost_and_found_->children.find(unused) != nullptr; ++i) unused = fmt::format("{}.{}", name, i);
    tree.insert(lost_and_found_, unused, node);
}

// Ids are never reused, but the records of the last ones may be lost. Leases, clients and the kernel may still refer to
// lost nodes.
void Restorer::skip_numbers() {
    constexpr uint64_t kApart = 1 << 20;
    for (Numbers* numbers : {&store_.nodes_.ids_, &store_.extents_.ids_, &store_.extents_.keys_, &store_.session_ids_,
                             &store_.file_ids_}) {
        numbers->skip_to(numbers->next() + kApart);
    }
}

// Names nodes whose directory is lost by the last part of their former name. Before that, directories that contain
// themselves lose their name.
void Restorer::name_lost_nodes() {
    const Directory* root = &store_.tree_.root();
    for (Node* node : store_.nodes_.all()) {
        auto* directory = as_directory(node);
        if (directory == nullptr || directory == root || directory->links == 0) continue;
        std::unordered_set<const Directory*> way;
        const Directory* at = directory;
        while (at != nullptr && way.insert(at).second) at = at->parent();
        if (at != nullptr) store_.tree_.remove(&directory->first_link);
    }
    std::unordered_map<const Node*, std::string> names;
    for (const auto& [node, link] : links_) {
        if (node->links == 0) names.try_emplace(node, link.name);
    }
    for (Node* node : store_.nodes_.all()) {
        const auto* directory = as_directory(node);
        auto name = names.find(node);
        if (node == root || node->links > 0) continue;
        if (name == names.end() && (directory == nullptr || directory->children.empty())) continue;  // it had no name
        put_in_lost_and_found(node, name == names.end() ? fmt::format("directory-{}", node->id) : name->second);
        ++salvaged_.objects;
    }
}

Object* Restorer::make_lost(StoredExtent* extent, uint64_t offset, uint64_t bytes) {
    auto* object = store_.nodes_.make<Object>();
    object->state = ObjectState::open;
    object->flags = kCreateKeep;
    object->mode = 0600;
    object->uid = store_.tree_.root().uid;
    object->gid = store_.tree_.root().gid;
    object->device = extent->device;
    object->size_bytes = bytes;
    object->offset = offset;
    object->extent = extent;
    object->created_ns = object->accessed_ns = object->modified_ns = object->changed_ns = store_.clock_.now_ns();
    object->used_ns = object->created_ns;
    store_.extents_.attach({extent, offset});
    ++salvaged_.objects;
    salvaged_.bytes += bytes;
    return object;
}

// Names ranges of slabs without a node, unless all bytes are zero, and extents without a node.
void Restorer::name_lost_memory() {
    for (auto& [extent, ranges] : taken_) {
        std::vector<Range> gaps;
        uint64_t at = 0;
        for (const Range& range : ranges) {
            if (range.offset > at) gaps.push_back({at, range.offset - at, nullptr});
            at = std::max(at, range.offset + range.bytes);
        }
        if (extent->size_bytes > at) gaps.push_back({at, extent->size_bytes - at, nullptr});
        for (Range& gap : gaps) {
            if (is_zero(*extent->memory, gap.offset, gap.bytes)) continue;
            gap.object = make_lost(extent, gap.offset, gap.bytes);
            put_in_lost_and_found(gap.object, fmt::format("extent-{}-at-{}", extent->key, gap.offset));
            ranges.push_back(gap);
        }
        std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
        // The objects in the slab may now have different rights, and a process that maps it would reach all of them.
        store_.extents_.close_slab(extent);
    }
    for (auto& [key, extent] : extents_) {
        if (extent->slab_group != nullptr || extent->objects > 0) continue;
        put_in_lost_and_found(make_lost(extent, 0, extent->size_bytes), fmt::format("extent-{}", key));
    }
}

}  // namespace gshm::core

// Attributes of objects and directories.
#include <sys/stat.h>

#include "base/limits.h"
#include "base/name.h"
#include "store/store.h"

namespace gshm {
namespace {

Status check_attribute(std::string_view name, std::string_view value) {
    if (name.empty()) return fail(EINVAL, "an attribute's name must not be empty");
    if (name.size() > limits::kAttributeNameBytes) {
        return fail(ENAMETOOLONG, "an attribute's name has at most {} bytes", limits::kAttributeNameBytes);
    }
    if (name.find('\0') != std::string_view::npos || !is_valid_utf8(name)) {
        return fail(EILSEQ, "an attribute's name must be UTF-8 without NUL");
    }
    if (value.size() > limits::kAttributeValueBytes) {
        return fail(E2BIG, "an attribute's value has at most {} bytes", limits::kAttributeValueBytes);
    }
    return {};
}

size_t total_bytes(const Attributes& attributes) {
    size_t total = 0;
    for (const auto& [name, value] : attributes) total += name.size() + value.size();
    return total;
}

}  // namespace

Status Store::check_attributes(const Attributes& attributes) {
    for (const auto& [name, value] : attributes) TRY(check_attribute(name, value));
    if (total_bytes(attributes) <= limits::kAttributesBytes) return {};
    return fail(E2BIG, "the attributes of an object have at most {} bytes", limits::kAttributesBytes);
}

Result<Node*> Store::find_attributed(const Session& session, std::string_view name, unsigned right) const {
    if (!name.empty()) TRY(check_name(name));
    Node* node = TRY(tree_.find(session.who, name, Tree::Last::follow));
    if (node->kind != NodeKind::object && node->kind != NodeKind::directory) {
        return fail(EINVAL, "\"{}\" is a special file, which has no attributes", name);
    }
    if (!is_permitted(*node, session.who, right)) {
        return fail(EACCES, "permission denied: {} \"{}\"", right == kRightWrite ? "write" : "read", name);
    }
    // As the kernel: where everyone makes entries, the owner alone describes the directory.
    bool sticky = node->kind == NodeKind::directory && (node->mode & S_ISVTX) != 0;
    if (right == kRightWrite && sticky && !session.who.is_root() && session.who.uid != node->uid) {
        return fail(EPERM, "only its owner may set attributes of \"{}\"", name);
    }
    return node;
}

Status Store::set_attribute(SessionId session, std::string_view name, std::string_view attribute,
                            std::string_view value) {
    Node* node = TRY(find_attributed(at(session), name, kRightWrite));
    TRY(check_attribute(attribute, value));
    size_t others = 0;
    if (node->attributes) {
        auto old = node->attributes->find(attribute);
        others = total_bytes(*node->attributes);
        if (old != node->attributes->end()) others -= old->first.size() + old->second.size();
    }
    if (others + attribute.size() + value.size() > limits::kAttributesBytes) {
        return fail(E2BIG, "the attributes of \"{}\" have at most {} bytes", name, limits::kAttributesBytes);
    }
    if (!node->attributes) node->attributes = std::make_unique<Attributes>();
    node->attributes->insert_or_assign(std::string(attribute), std::string(value));
    node->changed_ns = clock_.now_ns();
    nodes_.changed(node);
    tree_.report(*node);
    return {};
}

Result<const Attributes*> Store::attributes(SessionId session, std::string_view name) const {
    static const Attributes none;
    const Node* node = TRY(find_attributed(at(session), name, kRightRead));
    return node->attributes ? node->attributes.get() : &none;
}

Result<std::string_view> Store::get_attribute(SessionId session, std::string_view name,
                                              std::string_view attribute) const {
    const Attributes* all = TRY(attributes(session, name));
    auto found = all->find(attribute);
    if (found == all->end()) return fail(ENODATA, "\"{}\" has no attribute \"{}\"", name, attribute);
    return found->second;
}

Status Store::remove_attribute(SessionId session, std::string_view name, std::string_view attribute) {
    Node* node = TRY(find_attributed(at(session), name, kRightWrite));
    if (!node->attributes || node->attributes->erase(std::string(attribute)) == 0) {
        return fail(ENODATA, "\"{}\" has no attribute \"{}\"", name, attribute);
    }
    nodes_.changed(node);
    return {};
}

}  // namespace gshm

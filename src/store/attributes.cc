// Attributes of objects and directories.
#include <sys/stat.h>

#include "base/name.h"
#include "store/store.h"

namespace gshm::core {

// As for the names of objects: text in the protocol and in JSON is UTF-8.
Status Store::check_attribute_name(std::string_view name) {
    if (name.find('\0') == std::string_view::npos && is_valid_utf8(name)) return {};
    return fail(EILSEQ, "an attribute's name must be UTF-8 without NUL");
}

Result<Node*> Store::find_attributed(const Session& session, std::string_view name, unsigned right) const {
    if (!name.empty()) TRY(check_name(name));
    Node* node = TRY(tree_.find(session.who, name, Tree::Last::follow));
    // As in the kernel for user.* attributes: only files and directories have them.
    const bool can_have = node->kind == NodeKind::object || node->kind == NodeKind::directory;
    if (!can_have && right == kRightWrite)
        return fail(EPERM, "\"{}\" is a special file, which has no attributes", name);
    if (!is_permitted(*node, session.who, right)) {
        return fail(EACCES, "permission denied: {} \"{}\"", right == kRightWrite ? "write" : "read", name);
    }
    // As in the kernel: only the owner sets the attributes of a sticky directory.
    bool sticky = node->kind == NodeKind::directory && (node->mode & S_ISVTX) != 0;
    if (right == kRightWrite && sticky && !session.who.is_root() && session.who.uid != node->uid) {
        return fail(EPERM, "only its owner may set attributes of \"{}\"", name);
    }
    return node;
}

Status Store::set_attribute(SessionId session, std::string_view name, std::string_view attribute,
                            std::string_view value) {
    TRY(check_attribute_name(attribute));
    return operations_.set_attribute(*TRY(find_attributed(at(session), name, kRightWrite)), attribute, value, 0);
}

Result<const Attributes*> Store::attributes(SessionId session, std::string_view name) const {
    static const Attributes none;
    const Node* node = TRY(find_attributed(at(session), name, kRightRead));
    return node->attributes ? node->attributes.get() : &none;
}

Result<std::string_view> Store::get_attribute(SessionId session, std::string_view name,
                                              std::string_view attribute) const {
    return Operations::attribute(*TRY(find_attributed(at(session), name, kRightRead)), attribute);
}

Status Store::remove_attribute(SessionId session, std::string_view name, std::string_view attribute) {
    return operations_.remove_attribute(*TRY(find_attributed(at(session), name, kRightWrite)), attribute);
}

}  // namespace gshm::core

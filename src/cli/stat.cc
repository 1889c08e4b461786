#include <algorithm>
#include <cerrno>
#include <optional>

#include "cli/commands.h"
#include "cli/support/acls.h"
#include "cli/support/attributes.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/tensors.h"
#include "cli/support/text.h"

namespace gshm::cli {

namespace {

StatInfo stat(Context& context, const std::string& name) {
    auto found = context.client().stat(name);
    if (found) return *std::move(found);
    // The usual hint for EACCES is this command.
    throw Failure::of_error(found.error(), name,
                            found.error().code == EACCES ? "you may not search its directory" : "");
}

// nullopt: they may not be read. Mode, owner and size are shown nevertheless.
std::optional<std::vector<Attribute>> find_attributes(Context& context, const std::string& name) {
    auto found = context.client().attributes(name);
    if (!found && found.error().code == EACCES) return std::nullopt;
    return check(std::move(found), name);
}

constexpr size_t kShownTensors = 20;

bool has_tensors(const std::optional<std::vector<Attribute>>& attributes) {
    const auto is_mark = [](const Attribute& attribute) { return attribute.name == GSHM_TENSORS_ATTRIBUTE; };
    return attributes && std::ranges::any_of(*attributes, is_mark);
}

}  // namespace

int cmd_stat(Context& context, const StatArgs& args) {
    std::vector<Record> records;
    std::string text;
    const int exit_code = context.for_each(args.names, [&](const std::string& given) {
        const auto name = without_trailing_slashes(given);
        const auto info = stat(context, name);
        std::optional<std::vector<Attribute>> attributes;  // null: not readable
        if (info.kind == GSHM_KIND_OBJECT) attributes = find_attributes(context, name);
        // An attribute that another program has set may promise tensors that the object does not have.
        std::optional<std::vector<TensorInfo>> tensors;
        std::string reason;
        if (has_tensors(attributes)) {
            try {
                tensors = find_tensors(context, name);
            } catch (const Failure& failure) {
                reason = failure.what();
            }
        }
        ShownAcls acls;
        if (has_acl(info)) acls.acl = check(context.client().acl(name), name);
        if (has_default_acl(info)) acls.default_acl = check(context.client().acl(name, true), name);
        if (context.json()) {
            auto record = stat_record(name, info);
            Accounts accounts;
            if (has_acl(info)) record.add("acl", acl_records(accounts, acls.acl));
            if (has_default_acl(info)) record.add("default_acl", acl_records(accounts, acls.default_acl));
            std::vector<Record> list;
            if (attributes) {
                for (const auto& attribute : *attributes) list.push_back(attribute_record(attribute));
                record.add("attributes", std::move(list));
            }
            if (tensors) record.add("tensors", tensor_records(*tensors));
            records.push_back(std::move(record));
        } else {
            text +=
                (text.empty() ? "" : "\n") + stat_text(name, info, attributes.value_or(std::vector<Attribute>()), acls);
            if (tensors && !tensors->empty()) text += "\n" + tensors_text(*tensors, args.all ? 0 : kShownTensors);
            if (!reason.empty()) text += "\nno tensors can be shown: " + printable(reason) + "\n";
        }
    });
    if (context.json()) {
        Record record;
        record.add("objects", std::move(records));
        context.print(record);
    } else {
        context.print(text);
    }
    return exit_code;
}

}  // namespace gshm::cli

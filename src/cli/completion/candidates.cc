#include "cli/completion/candidates.h"

#include <filesystem>
#include <grp.h>
#include <pwd.h>

#include "cli/support/attributes.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"

namespace gshm::cli {
namespace {

// What the lambda returns; nothing if there is no gshmd, or if it refuses.
template <typename Ask>
std::vector<std::string> asked(const std::string& dir, Ask ask) {
    try {
        Context context(dir, false);
        return ask(context);
    } catch (const Failure&) {
        return {};
    }
}

}  // namespace

std::vector<std::string> object_candidates(const std::string& dir, std::string_view prefix) {
    const size_t slash = prefix.rfind('/');
    const std::string directory(prefix.substr(0, slash == prefix.npos ? 0 : slash));
    const std::string_view above = prefix.substr(0, slash == prefix.npos ? 0 : slash + 1);
    const std::string_view begin = prefix.substr(above.size());
    return asked(dir, [&](Context& context) {
        std::vector<std::string> names;
        const auto listed = context.client().list(directory);
        if (!listed) return names;
        for (const auto& [name, info] : *listed) {
            if (name.starts_with(begin)) names.push_back(std::string(above) + name + (is_directory(info) ? "/" : ""));
        }
        return names;
    });
}

std::vector<std::string> device_candidates(const std::string& dir) {
    return asked(dir, [](Context& context) {
        std::vector<std::string> names;
        for (const auto& device : context.devices()) names.emplace_back(device.name);
        return names;
    });
}

std::vector<std::string> attribute_candidates(const std::string& dir, const std::string& object) {
    return asked(dir, [&](Context& context) {
        std::vector<std::string> keys;
        for (const auto& attribute : get_attributes(context, object)) keys.push_back(attribute.name);
        return keys;
    });
}

std::vector<std::string> mount_candidates(const std::string& dir) {
    return asked(dir, [](Context& context) {
        std::vector<std::string> paths;
        for (const auto& mount : context.mounts()) paths.emplace_back(mount.path);
        return paths;
    });
}

std::vector<std::string> user_candidates() {
    std::vector<std::string> names;
    setpwent();
    while (const auto* user = getpwent()) names.emplace_back(user->pw_name);
    endpwent();
    return names;
}

std::vector<std::string> group_candidates() {
    std::vector<std::string> names;
    setgrent();
    while (const auto* group = getgrent()) names.emplace_back(group->gr_name);
    endgrent();
    return names;
}

std::vector<std::string> path_candidates(std::string_view prefix, bool folders_only) {
    const size_t slash = prefix.rfind('/');
    const std::string above(prefix.substr(0, slash == prefix.npos ? 0 : slash + 1));
    const std::string_view begin = prefix.substr(above.size());
    std::vector<std::string> paths;
    std::error_code error;
    std::filesystem::directory_iterator entries(above.empty() ? "." : above, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
        const auto name = entries->path().filename().string();
        if (!name.starts_with(begin) || (begin.empty() && name.starts_with('.'))) continue;
        std::error_code unknown;
        const bool is_folder = entries->is_directory(unknown);
        if (is_folder || !folders_only) paths.push_back(above + name + (is_folder ? "/" : ""));
    }
    return paths;
}

}  // namespace gshm::cli

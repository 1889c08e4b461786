#include "client/load/trees.h"

#include <unistd.h>

#include "client/files/transfer.h"

namespace gshm::core::client {
namespace {

constexpr const char* kFolder = "loaded";

std::string usual_tree(uid_t uid) {
    return fmt::format("{}/{}", kFolder, uid);
}

}  // namespace

Result<gshm_stat_info> stat_of(gshm_client* client, const std::string& name) {
    gshm_stat_info info = GSHM_STAT_INFO_INIT;
    TRY(as_status(gshm_stat(client, name.c_str(), &info)));
    return info;
}

bool is_missing(const Error& error) {
    return error.code == ENOENT || error.code == ENOTDIR;
}

const std::string& Trees::of(uid_t uid) {
    auto& tree = known_[uid];
    if (tree.empty()) tree = usual_tree(uid);
    return tree;
}

// Several users have their trees in one directory, in which each may remove only what is theirs.
Status Trees::make_own() {
    const std::pair<std::string, uint32_t> folders[] = {{kFolder, 01777}, {of(geteuid()), 0711}};
    for (const auto& [name, mode] : folders) {
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = GSHM_KIND_DIRECTORY;
        spec.name = name.c_str();
        spec.mode = mode;
        const auto made = as_status(gshm_make(client_, &spec));
        const bool in_doubt = !made && made.error().code == ECONNRESET;
        if (!made && made.error().code != EEXIST && !(in_doubt && stat_of(client_, name))) return made;
    }
    return {};
}

}  // namespace gshm::core::client

#include "client/load/trees.h"

#include <memory>
#include <random>
#include <unistd.h>

#include "client/files/transfer.h"

namespace gshm::core::client {
namespace {

constexpr uint32_t kTreeMode = 0711;  // another user finds an object by its name, and lists nothing
constexpr uint32_t kWritableByOthers = 0022;
constexpr int kAttempts = 8;

bool is_tree_of(const gshm_stat_info& info, uid_t uid) {
    return info.kind == GSHM_KIND_DIRECTORY && info.uid == uid && (info.mode & kWritableByOthers) == 0;
}

struct ListingCloser {
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};

// Another user cannot take it before, but all users can find it.
std::string new_name(uid_t uid) {
    std::random_device random;
    return fmt::format("{}.{:08x}{:08x}", Trees::usual_name(uid), random(), random());
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

std::string Trees::usual_name(uid_t uid) {
    return fmt::format("loaded-{}", uid);
}

Result<std::optional<std::string>> Trees::look(uid_t uid) {
    const auto usual = usual_name(uid);
    const auto info = stat_of(client_, usual);
    if (info && is_tree_of(*info, uid)) return usual;
    if (!info && is_missing(info.error())) return std::nullopt;
    // A symbolic link of another user, which is not followed, or leads nowhere.
    const bool is_taken = info || info.error().code == EACCES || info.error().code == ELOOP;
    if (!is_taken) return std::unexpected(info.error());
    return look_for_others(uid);
}

Result<std::optional<std::string>> Trees::look_for_others(uid_t uid) {
    gshm_listing* made = nullptr;
    TRY(as_status(gshm_list(client_, "", 0, &made)));
    const std::unique_ptr<gshm_listing, ListingCloser> listing(made);
    const auto prefix = usual_name(uid) + ".";
    for (size_t i = 0; i < gshm_listing_count(listing.get()); ++i) {  // sorted by name
        const std::string name = gshm_listing_name(listing.get(), i);
        if (!name.starts_with(prefix)) continue;
        gshm_stat_info entry = GSHM_STAT_INFO_INIT;
        TRY(as_status(gshm_listing_stat(listing.get(), i, &entry)));
        if (is_tree_of(entry, uid)) return name;
    }
    return std::nullopt;
}

Result<std::optional<std::string>> Trees::find(uid_t uid) {
    const auto known = known_.find(uid);
    if (known != known_.end()) return known->second;
    auto found = TRY(look(uid));
    known_.emplace(uid, found);
    return found;
}

Result<std::string> Trees::make_own() {
    const uid_t uid = geteuid();
    const auto usual = usual_name(uid);
    auto name = usual;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        auto found = TRY(look(uid));
        if (!found && name != usual) found = TRY(look_for_others(uid));  // the name is a link that leads nowhere
        if (found) {
            known_[uid] = found;
            return *found;
        }
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = GSHM_KIND_DIRECTORY;
        spec.name = name.c_str();
        spec.mode = kTreeMode;
        const auto made = as_status(gshm_make(client_, &spec));
        // ECONNRESET: it may be there.
        if (!made && made.error().code != EEXIST && made.error().code != ECONNRESET)
            return std::unexpected(made.error());
        if (!made && made.error().code == EEXIST) name = new_name(uid);
    }
    return fail(EEXIST, "there is no place for loaded files of user {}: \"{}\" is another user's; load with a name",
                uid, usual);
}

}  // namespace gshm::core::client

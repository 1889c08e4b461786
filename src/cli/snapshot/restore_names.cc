#include "cli/snapshot/restore_names.h"

#include <cerrno>
#include <ranges>

#include <fmt/core.h>

#include "cli/support/acls.h"
#include "cli/support/failure.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

Failure exists(const std::string& name) {
    return {EEXIST, printable(name) + " exists and is another", "--replace puts the snapshot's in its place"};
}

}  // namespace

template <typename Body>
void RestoreNames::attempt(Body&& body) {
    try {
        body();
    } catch (const Failure& failure) {
        job_.fail(failure);
    }
}

void RestoreNames::make_directories() {
    for (const auto& directory : manifest_.directories) attempt([&] { make_directory(directory); });
}

void RestoreNames::make_directory(const SavedDirectory& directory) {
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_DIRECTORY;
    spec.name = directory.name.c_str();
    // The restore needs access until its objects are made. Root always has access, so it sets the final mode at once:
    // small objects then go to the extents of the users that can reach them. A mode of 0 would mean the default.
    spec.mode = how_.owned && directory.mode != 0 ? directory.mode : directory.mode | 0700;
    const auto& device = directory.device.empty() || how_.device.empty() ? directory.device : how_.device;
    spec.device = device.empty() ? nullptr : device.c_str();
    spec.flags = (directory.keep ? uint32_t{GSHM_KEEP} : 0) | owner_flag();
    spec.uid = directory.uid;
    spec.gid = directory.gid;
    const int status = gshm_make(client_.get(), &spec);
    bool unfinished = spec.mode != directory.mode;
    if (status == -EEXIST) {
        const auto info = check(client_.stat(directory.name), directory.name);
        if (info.kind != GSHM_KIND_DIRECTORY) throw exists(directory.name);
        // An interrupted run left the directory with this mode; its final mode is set at the end.
        unfinished = how_.replace || (unfinished && info.mode == spec.mode);
    } else {
        check(status, directory.name);
    }
    // Root always has access, and what it makes for others inherits nothing.
    const bool has_rights = !directory.acl.empty() || !directory.default_acl.empty();
    if (has_rights && status == 0 && how_.owned) set_acls(directory);
    else unfinished = unfinished || (has_rights && status == 0);
    if (unfinished) unfinished_.push_back(&directory);
    set_attributes(directory);
}

void RestoreNames::set_acls(const SavedDirectory& directory) {
    const auto& name = directory.name;
    if (!directory.acl.empty()) check(client_.set_acl(name, parse_acl(directory.acl, name)), name);
    if (!directory.default_acl.empty())
        check(client_.set_acl(name, parse_acl(directory.default_acl, name), true), name);
}

void RestoreNames::set_attributes(const SavedDirectory& directory) {
    for (const auto& [key, value] : directory.attributes) {
        if (!how_.replace && client_.attribute(directory.name, key)) continue;
        check(client_.set_attribute(directory.name, key, value), directory.name);
    }
}

void RestoreNames::finish_directories() {
    for (const auto* directory : std::views::reverse(unfinished_)) {
        attempt([&] {
            const uint32_t what = GSHM_CHANGE_MODE | (how_.owned ? uint32_t{GSHM_CHANGE_OWNER} : 0);
            const gshm_changes changes = {sizeof changes, what, directory->mode, directory->uid, directory->gid};
            check(gshm_change(client_.get(), directory->name.c_str(), &changes), directory->name);
            set_acls(*directory);
        });
    }
}

void RestoreNames::add_names(const std::vector<std::string>& names) {
    if (names.size() == 1) return;
    attempt([&] {
        const auto wanted = check(client_.stat(names.front()), names.front());
        for (const auto& name : names | std::views::drop(1)) {
            attempt([&] {
                if (make_way(name, wanted)) check(client_.link(names.front(), name), name);
            });
        }
    });
}

bool RestoreNames::make_way(const std::string& name, const StatInfo& wanted) {
    auto found = client_.stat(name);
    if (!found && found.error().code == ENOENT) return true;
    const auto info = check(std::move(found), name);
    if (info.id == wanted.id) return false;
    if (!how_.replace || info.kind == GSHM_KIND_DIRECTORY) throw exists(name);
    check(client_.unlink(name), name);
    return true;
}

bool RestoreNames::leads_to(const std::string& name, const std::string& target) {
    const auto now = client_.read_link(name);
    return now && *now == target;
}

void RestoreNames::make_symlinks() {
    for (const auto& link : manifest_.symlinks) {
        attempt([&] {
            make_symlink(link);
            add_names(link.names);
        });
    }
}

void RestoreNames::make_symlink(const SavedSymlink& link) {
    const auto& name = link.names.front();
    if (leads_to(name, link.target)) return;
    make_way(name, StatInfo{});
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_SYMLINK;
    spec.name = name.c_str();
    spec.target = link.target.c_str();
    spec.flags = owner_flag();
    spec.uid = link.uid;
    spec.gid = link.gid;
    check(gshm_make(client_.get(), &spec), name);
}

}  // namespace gshm::cli

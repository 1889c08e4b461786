#include "cli/snapshot/restore_names.h"

#include <cerrno>
#include <ranges>

#include <fmt/core.h>

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
    // Root needs no right there; where nobody else does, the mode is the last from the start, and small objects find
    // the extents of those who can reach them.
    spec.mode = how_.owned && directory.mode != 0 ? directory.mode : directory.mode | 0700;
    const auto& device = directory.device.empty() || how_.device.empty() ? directory.device : how_.device;
    spec.device = device.empty() ? nullptr : device.c_str();
    spec.flags = (directory.keep ? uint32_t{GSHM_KEEP} : 0) | owner_flag();
    spec.uid = directory.uid;
    spec.gid = directory.gid;
    const int status = gshm_make(client_, &spec);
    bool unfinished = spec.mode != directory.mode;
    if (status == -EEXIST) {
        auto info = sized<gshm_stat_info>();
        check(gshm_stat(client_, directory.name.c_str(), &info), directory.name);
        if (info.kind != GSHM_KIND_DIRECTORY) throw exists(directory.name);
        // As an interrupted run has left it: that one's work is done at the end.
        unfinished = how_.replace || (unfinished && info.mode == spec.mode);
    } else {
        check(status, directory.name);
    }
    if (unfinished) unfinished_.push_back(&directory);
    set_attributes(directory);
}

void RestoreNames::set_attributes(const SavedDirectory& directory) {
    for (const auto& [key, value] : directory.attributes) {
        size_t bytes = 0;
        const bool there = gshm_get_attribute(client_, directory.name.c_str(), key.c_str(), nullptr, 0, &bytes) == 0;
        if (there && !how_.replace) continue;
        check(gshm_set_attribute(client_, directory.name.c_str(), key.c_str(), value.data(), value.size()), directory.name);
    }
}

void RestoreNames::finish_directories() {
    for (const auto* directory : std::views::reverse(unfinished_)) {
        attempt([&] {
            auto changes = sized<gshm_changes>();
            changes.what = GSHM_CHANGE_MODE | (how_.owned ? uint32_t{GSHM_CHANGE_OWNER} : 0);
            changes.mode = directory->mode;
            changes.uid = directory->uid;
            changes.gid = directory->gid;
            check(gshm_change(client_, directory->name.c_str(), &changes), directory->name);
        });
    }
}

void RestoreNames::add_names(const std::vector<std::string>& names) {
    if (names.size() == 1) return;
    attempt([&] {
        auto wanted = sized<gshm_stat_info>();
        check(gshm_stat(client_, names.front().c_str(), &wanted), names.front());
        for (const auto& name : names | std::views::drop(1)) {
            attempt([&] {
                if (make_way(name, wanted)) check(gshm_link(client_, names.front().c_str(), name.c_str()), name);
            });
        }
    });
}

bool RestoreNames::make_way(const std::string& name, const gshm_stat_info& wanted) {
    auto info = sized<gshm_stat_info>();
    const int status = gshm_stat(client_, name.c_str(), &info);
    if (status == -ENOENT) return true;
    check(status, name);
    if (info.id == wanted.id) return false;
    if (!how_.replace || info.kind == GSHM_KIND_DIRECTORY) throw exists(name);
    check(gshm_unlink(client_, name.c_str()), name);
    return true;
}

bool RestoreNames::leads_to(const std::string& name, const std::string& target) {
    std::string now(4096, '\0');
    size_t bytes = 0;
    return gshm_read_link(client_, name.c_str(), now.data(), now.size(), &bytes) == 0 && now.substr(0, bytes) == target;
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
    make_way(name, sized<gshm_stat_info>());
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_SYMLINK;
    spec.name = name.c_str();
    spec.target = link.target.c_str();
    spec.flags = owner_flag();
    spec.uid = link.uid;
    spec.gid = link.gid;
    check(gshm_make(client_, &spec), name);
}

}  // namespace gshm::cli

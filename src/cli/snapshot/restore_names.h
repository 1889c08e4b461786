// Creates directories, further names of objects, and symbolic links during a restore.
#pragma once

#include <string>
#include <vector>

#include "cli/snapshot/format.h"
#include "cli/support/job.h"

namespace gshm::cli {

class RestoreNames {
public:
    struct How {
        std::string device;  // for all entries with a device; empty: the saved device
        bool owned = false;  // restore the saved owners
        bool replace = false;
    };
    RestoreNames(const Client& client, const Manifest& manifest, How how, Job& job)
        : client_(client), manifest_(manifest), how_(std::move(how)), job_(job) {}

    // The owner has access until finish_directories(), so that objects can be created in the directories.
    void make_directories();
    void finish_directories();
    // Adds all names but the first of an object or a symbolic link.
    void add_names(const std::vector<std::string>& names);
    void make_symlinks();

private:
    template <typename Body>
    void attempt(Body&& body);
    void make_directory(const SavedDirectory& directory);
    // Sets missing attributes; with --replace, all of them.
    void set_attributes(const SavedDirectory& directory);
    void set_acls(const SavedDirectory& directory);
    void make_symlink(const SavedSymlink& link);
    // True: the name is free now. False: it already refers to the wanted object. Throws a Failure if it refers to
    // another one.
    bool make_way(const std::string& name, const StatInfo& wanted);
    bool leads_to(const std::string& name, const std::string& target);
    uint32_t owner_flag() const { return how_.owned ? uint32_t{GSHM_OWNER} : 0; }

    const Client& client_;
    const Manifest& manifest_;
    How how_;
    Job& job_;
    std::vector<const SavedDirectory*> unfinished_;
};

}  // namespace gshm::cli

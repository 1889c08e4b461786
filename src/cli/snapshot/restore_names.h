// What a restore makes besides objects: directories, further names, symbolic links.
#pragma once

#include <string>
#include <vector>

#include "cli/support/job.h"
#include "cli/snapshot/format.h"

namespace gshm::cli {

class RestoreNames {
public:
    struct How {
        std::string device;  // for all that was on one; empty: each its own
        bool owned = false;  // they get the owners they had
        bool replace = false;
    };
    RestoreNames(const Client& client, const Manifest& manifest, How how, Job& job)
        : client_(client), manifest_(manifest), how_(std::move(how)), job_(job) {}

    // Open to their owner until finish_directories(), so that objects can be made in them.
    void make_directories();
    void finish_directories();
    // All but the first of an object's or a symbolic link's.
    void add_names(const std::vector<std::string>& names);
    void make_symlinks();

private:
    template <typename Body>
    void attempt(Body&& body);
    void make_directory(const SavedDirectory& directory);
    // Those that it lacks; with --replace all of them.
    void set_attributes(const SavedDirectory& directory);
    void make_symlink(const SavedSymlink& link);
    // True: the name is free now. False: it stands for what it should. Throws a Failure if it stands for another.
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

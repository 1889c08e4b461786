// The objects that a tier with `keep` has, and that outlive the catalog: their facts are written beside their bytes when
// they change, and a gshmd with another catalog takes them up from there.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/store_lock.h"
#include "memory/tier_folder.h"
#include "store/store.h"

namespace gshm::core {

class KeptObjects {
public:
    // devices: the names, by index.
    KeptObjects(Store& store, TierFolder& folder, std::vector<std::string> devices)
        : store_(store), folder_(folder), devices_(std::move(devices)) {}

    // Once, after TierFolder::begin(): takes up the objects of an earlier catalog. Objects whose facts cannot be used now,
    // for example because their device is missing, stay in the folder for a later gshmd. `commit` records what was taken
    // up so far, and calls write().
    using Commit = std::function<Status()>;
    Status adopt(const Commit& commit) REQUIRES(store_lock);

    // As the Recorder.
    void changed(const Node& node) REQUIRES(store_lock);
    void erased(const Node& node) REQUIRES(store_lock);
    // The catalog has recorded all changes so far: gives the facts of the changed objects to the folder.
    void write() REQUIRES(store_lock);

private:
    static std::string way_of(const Directory& directory);
    void note_ways(const Object& object) REQUIRES(store_lock);
    void change_below(const Directory& directory) REQUIRES(store_lock);

    Store& store_ GUARDED_BY(store_lock);
    TierFolder& folder_;
    const std::vector<std::string> devices_;
    std::unordered_set<NodeId> changed_ GUARDED_BY(store_lock);
    // The name and rights of the directories above stored objects, as of their facts: a directory changes with each entry
    // that it gets, which is no reason to write the facts of all below it.
    struct Way {
        const Directory* directory;
        std::string text;
    };
    std::unordered_map<NodeId, Way> ways_ GUARDED_BY(store_lock);
};

}  // namespace gshm::core

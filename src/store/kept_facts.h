// The facts of an object whose bytes outlive the catalog, in the folder of a tier with `keep`: all that a later gshmd needs
// to have it back. docs/tier-format.md has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/node.h"

namespace gshm::core {

struct KeptFacts {
    // The rights of a directory above a name, so that the object is not easier to reach than before.
    struct Directory {
        uint16_t mode = 0;
        uid_t uid = 0;
        gid_t gid = 0;
        bool implicit = false;
        std::string acl;  // as of encode_acl(); "": none

        bool operator==(const Directory&) const = default;
    };
    struct Name {
        std::string path;
        std::vector<Directory> directories;  // one for each part but the last

        bool operator==(const Name&) const = default;
    };

    std::vector<Name> names;  // at least one
    uint16_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    ObjectState state = ObjectState::open;
    uint32_t flags = 0;
    uint64_t size_bytes = 0;
    std::string device;  // that it belongs to
    int64_t created_ns = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    int64_t ttl_ns = 0;       // 0: none
    int64_t ttl_from_ns = 0;  // where it begins, by the time of day
    Attributes attributes;
    std::string acl;

    bool operator==(const KeptFacts&) const = default;
};

// Without names for an object without a name.
KeptFacts kept_facts(const Object& object, const std::string& device);
KeptFacts::Directory kept_directory(const Directory& directory);

std::string encode_kept_facts(const KeptFacts& facts);
// EBADMSG for bytes that gshmd cannot have written.
Result<KeptFacts> decode_kept_facts(std::string_view bytes);

}  // namespace gshm::core

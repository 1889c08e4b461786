// The contents of a snapshot. docs/snapshot.md describes the manifest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "snapshot/chunk.h"

namespace gshm::core {

struct SavedAttribute {
    std::string key;
    std::string value;
};

struct SavedDirectory {
    std::string name;
    uint32_t mode = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    bool keep = false;
    std::string device;  // empty: no default device
    std::vector<SavedAttribute> attributes;
    // Empty: none. With an access ACL the mode has the owner's rights only, for a gshm that does not know ACLs.
    std::string acl = {};
    std::string default_acl = {};
};

struct SavedSymlink {
    std::vector<std::string> names;  // at least one
    std::string target;              // any bytes
    uint32_t uid = 0;
    uint32_t gid = 0;
};

struct SavedObject {
    std::vector<std::string> names;  // at least one
    uint32_t mode = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    std::string device;
    uint32_t flags = 0;  // as in gshm_stat_info
    bool sealed = false;
    bool changing = false;
    std::vector<SavedAttribute> attributes;
    std::string acl = {};  // as that of a directory
    int64_t created_ns = 0;
    uint64_t ttl_ms = 0;  // what was left of it; 0: none
    bool ttl_unused = false;
    Identity identity;
    std::vector<ChunkPlace> chunks;

    const std::string& name() const { return names.front(); }
    uint64_t size_bytes() const { return identity.size_bytes; }
};

// A name that is missing in the snapshot, with the reason.
struct LeftOut {
    std::string name;
    std::string reason;
};

struct Manifest {
    std::vector<std::string> files;
    uint64_t instance = 0;
    int64_t created_ns = 0;
    std::vector<SavedDirectory> directories;  // parents first
    std::vector<SavedObject> objects;
    std::vector<SavedSymlink> symlinks;
    std::vector<LeftOut> left_out;

    uint64_t size_bytes() const;
};

// Replaces the manifest of the folder atomically. It is on the disk when this returns.
Status write_manifest(const std::string& folder, const Manifest& manifest);
// nullopt: there is none. EIO: it is damaged.
Result<std::optional<Manifest>> read_manifest(const std::string& folder);

}  // namespace gshm::core

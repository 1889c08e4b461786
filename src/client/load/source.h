// The files of tensors at a path: opened with the rights of this process, and their headers read.
#pragma once

#include <string>
#include <sys/stat.h>
#include <vector>

#include "base/fd.h"
#include "tensors/table.h"

namespace gshm::core::client {

struct SourceFile {
    std::string name;  // relative to the folder; the last part of the path of a single file
    std::string path;  // without symbolic links, as the kernel knows the open file
    UniqueFd fd;
    struct stat status = {};
    tensors::Table table;
    std::string identity;  // of its bytes: the blob of a hub's cache, or inode, size and time
};

struct Source {
    bool is_folder = false;
    std::vector<SourceFile> files;  // in the order of their names
};

// EBADMSG: a header or the index is malformed. EXDEV: a link leads out of the folder. ENOENT: there are no such files.
Result<Source> open_source(const std::string& path);

// EBUSY: the file has changed since it was opened. ENODATA: it has become shorter.
Status check_unchanged(const SourceFile& file);

// The permission bits of an object with the file's bytes: of the users who may read the file.
uint32_t mode_like(const SourceFile& file, gid_t gid);

}  // namespace gshm::core::client

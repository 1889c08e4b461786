// The folder of a snapshot: a manifest and data files of chunks. Locked while it is in use.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"

namespace gshm::core {

class SnapshotFolder {
public:
    enum class Use { read, write };
    // Creates a missing folder for writing. EBUSY: another process uses it. ENOTEMPTY: it is opened for writing and
    // contains other files than a snapshot.
    static Result<SnapshotFolder> open(const std::string& path, Use use);

    const std::string& path() const { return path_; }
    std::string path_of(const std::string& file) const { return path_ + "/" + file; }
    // Names of data files, in the order of their runs.
    Result<std::vector<std::string>> data_files() const;
    static std::string data_file(unsigned run, unsigned thread);
    // The first run without files.
    Result<unsigned> next_run() const;
    Status remove(const std::string& file) const;

private:
    SnapshotFolder(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

    std::string path_;
    UniqueFd lock_;
};

}  // namespace gshm::core

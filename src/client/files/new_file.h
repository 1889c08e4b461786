// A file that is written under a temporary name, or unnamed if the file system supports it, and renamed when complete.
#pragma once

#include <string>

#include "base/fd.h"

namespace gshm::core::client {

class NewFile {
public:
    // An existing file keeps its mode, and a symbolic link to it stays. EISDIR, EINVAL: the path is not a regular file.
    static Result<NewFile> create(const std::string& path);
    NewFile(NewFile&&) = default;
    ~NewFile();  // removes the file unless it is committed

    int fd() const { return file_.get(); }  // for reading and writing
    // Reports a full disk before anything is copied.
    Status reserve(uint64_t bytes) const;
    Status commit();

private:
    NewFile(std::string path, std::string part, UniqueFd file, bool is_named)
        : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)), is_named_(is_named) {}

    std::string path_;
    std::string part_;  // the temporary name in the same folder
    UniqueFd file_;
    bool is_named_;  // as `part_`
};

}  // namespace gshm::core::client

// A file that is written beside its place, without a name where the file system can, and put there when it is whole.
#pragma once

#include <string>

#include "base/fd.h"

namespace gshm::core::client {

class NewFile {
public:
    // A file that exists keeps its mode, and a link to it stays. EISDIR, EINVAL: there is something else than a file.
    static Result<NewFile> create(const std::string& path);
    NewFile(NewFile&&) = default;
    ~NewFile();  // what is not committed goes

    int fd() const { return file_.get(); }  // for reading and writing
    // So that a full disk is known before anything is copied.
    Status reserve(uint64_t bytes) const;
    Status commit();

private:
    NewFile(std::string path, std::string part, UniqueFd file, bool is_named)
        : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)), is_named_(is_named) {}

    std::string path_;
    std::string part_;  // beside it
    UniqueFd file_;
    bool is_named_;  // by `part_`
};

}  // namespace gshm::core::client

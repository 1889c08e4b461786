// A file that is written beside its place and put there when it is whole.
#pragma once

#include <cstdint>
#include <string>

#include "cli/support/failure.h"
#include "cli/support/streams.h"

namespace gshm::cli {

class Destination {
public:
    // Room for size_bytes is made at once, so that a full disk is known before the copy. A file that exists keeps its
    // mode, and a link to it stays. Throws a Failure.
    static Destination create(const std::string& path, uint64_t size_bytes);
    Destination(Destination&& other) noexcept = default;
    ~Destination();  // removes what is not committed

    const std::string& path() const { return path_; }
    int fd() const { return file_.get(); }  // for reading and writing
    // Why it cannot be written, with the room that there is if that is why. code: an errno.
    Failure failure(int code) const;
    void commit();

private:
    Destination(std::string path, std::string part, int fd, uint64_t size_bytes)
        : path_(std::move(path)), part_(std::move(part)), file_(fd), size_bytes_(size_bytes) {}
    void reserve() const;
    void give_name();

    std::string path_;
    std::string
        part_;  // where it is until it is whole; "": nowhere, as file systems allow that can make nameless files
    FileDescriptor file_;
    uint64_t size_bytes_;
};

}  // namespace gshm::cli

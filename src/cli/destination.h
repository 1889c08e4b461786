// A file that is written beside its place and put there when it is whole.
#pragma once

#include <cstdint>
#include <string>

#include "streams.h"

namespace gshm::cli {

class Destination {
public:
    // path may be a directory: the file then has default_name there. Room for size_bytes is made at once, so that a
    // full disk is known before the copy. What exists and is not a regular file (/dev/null, a fifo) is written to
    // directly. Throws a Failure.
    static Destination create(const std::string& path, const std::string& default_name, uint64_t size_bytes);
    Destination(Destination&& other) noexcept = default;
    ~Destination();  // removes what is not committed

    const std::string& path() const { return path_; }
    void write(const void* bytes, size_t count);
    void commit();

private:
    Destination(std::string path, std::string part, int fd)
        : path_(std::move(path)), part_(std::move(part)), file_(fd) {}
    void reserve(uint64_t size_bytes);

    std::string path_;
    std::string part_;  // empty if written to directly, or committed
    FileDescriptor file_;
};

}  // namespace gshm::cli

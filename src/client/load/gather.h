// Buffers that collect many small ranges of a file, so that one transfer moves them all. A ring operation costs more than the
// copy of a few KiB.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"

namespace gshm::core::client {

class GatherBuffers {
public:
    static constexpr uint64_t kBytes = uint64_t{16} << 20;  // of each
    static constexpr uint32_t kCount = 4;

    static Result<GatherBuffers> create();

    // The buffers are a file, which the ring reads.
    int fd() const { return file_.get(); }
    static uint64_t offset(uint32_t buffer) { return buffer * kBytes; }

    // nullopt: all are in use.
    std::optional<uint32_t> take();
    void give(uint32_t buffer) { free_.push_back(buffer); }

    struct Rows {
        int fd = -1;
        uint64_t offset = 0;  // of the first, in the file
        uint64_t bytes = 0;   // of each
        uint64_t stride = 0;
        uint64_t count = 0;
    };
    // ENODATA: the file ends before the rows do. The error has no path.
    Status fill(uint32_t buffer, const Rows& rows);

private:
    GatherBuffers() = default;

    UniqueFd file_;
    Mapping mapping_;
    std::vector<uint32_t> free_;
};

}  // namespace gshm::core::client

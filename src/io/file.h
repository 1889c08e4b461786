// An open file as the engine sees it: how it may be read and written, and which way is best. Safe from any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "base/result.h"

namespace gshm::io {

class File {
public:
    // Takes over the descriptor. EINVAL unless it is a regular file or a block device, EBADF if nothing can be done with it.
    static Result<std::shared_ptr<File>> create(UniqueFd fd);

    bool is_readable() const;
    bool is_writable() const;
    uint64_t size() const;  // now
};

}  // namespace gshm::io

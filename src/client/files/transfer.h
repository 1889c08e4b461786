// Transfers a range between a file and an object through a ring. Also the helpers of the whole-file calls.
#pragma once

#include <memory>

#include "client/api.h"

namespace gshm::core::client {

struct FileRange {
    uint64_t offset = 0;  // in the object
    int fd = -1;
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
};

// The options, or their defaults. flags: those that the call supports.
Result<gshm_transfer_options> read_transfer_options(const gshm_transfer_options* options, uint32_t flags);

// operation: GSHM_IO_...
Result<gshm_transfer_info> transfer(gshm_object& object, uint32_t operation, const FileRange& range,
                                    const gshm_transfer_options& options);

// Reports progress to the caller, over a transfer and the comparison after it.
class TransferProgress {
public:
    explicit TransferProgress(const gshm_transfer_options& options)
        : options_(options), verifies_((options.flags & GSHM_TRANSFER_VERIFY) != 0) {}

    bool verifies() const { return verifies_; }
    // ECANCELED: the caller stops the transfer. total_bytes 0: unknown.
    Status moved(uint64_t done_bytes, uint64_t total_bytes) const;
    Status compared(uint64_t done_bytes, uint64_t total_bytes) const;
    // Everything is copied and compared.
    Status finish(uint64_t bytes) const { return tell(bytes, bytes); }
    // Options for transfer(); they refer to this object.
    gshm_transfer_options for_transfer();

private:
    Status tell(uint64_t done_bytes, uint64_t total_bytes) const;

    const gshm_transfer_options options_;
    bool verifies_;
};

// The status of a call of this library, from inside of it.
inline Status as_status(int code) {
    if (code >= 0) return {};
    return std::unexpected(Error{-code, last_error()});
}

struct ObjectCloser {
    void operator()(gshm_object* object) const { gshm_close(object); }
};
using ObjectHandle = std::unique_ptr<gshm_object, ObjectCloser>;

}  // namespace gshm::core::client

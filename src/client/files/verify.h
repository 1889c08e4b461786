// Compares an object with its source.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "client/files/transfer.h"

namespace gshm::core::client {

// The part of a file that an object is copied from.
struct FilePart {
    int fd = -1;
    uint64_t offset = 0;
    std::string path;  // for messages
};

// Compares the whole object with the file, which is read again, from the disk if its file system allows that. EBADMSG
// has the position of the first difference, which may be the end of the file.
Status compare_with_file(gshm_object& object, const std::string& name, const FilePart& part,
                         const TransferProgress& progress);

// A checksum of a stream, which can be read only once, for the comparison with the object.
class StreamChecksum {
public:
    StreamChecksum();
    void add(std::span<const std::byte> bytes);
    Status compare_with(gshm_object& object, const std::string& name, const TransferProgress& progress) const;

private:
    struct State;
    struct Free {
        void operator()(State* state) const;
    };
    std::unique_ptr<State, Free> state_;
};

}  // namespace gshm::core::client

// Whether an object has the bytes that it should.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "client/files/transfer.h"

namespace gshm::core::client {

// The part of a file that an object is a copy of.
struct FilePart {
    int fd = -1;
    uint64_t offset = 0;
    std::string path;  // for messages
};

// Compares all of the object with the file, which is read anew, from the disk where its file system allows that. EBADMSG
// says where they differ, also if the file ends before.
Status compare_with_file(gshm_object& object, const std::string& name, const FilePart& part,
                         const TransferProgress& progress);

// For bytes that come only once: a checksum of them, to be compared with that of the object.
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

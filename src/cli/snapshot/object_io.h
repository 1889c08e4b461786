// An object's bytes for the threads of snapshot and restore.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cli/support/failure.h"

namespace gshm::cli {

// Host memory that is read and written as a file: there is no copy through gshmd, and a truncation gives a short read
// instead of SIGBUS. Null for other devices and for small objects.
struct HostMemory {
    static std::unique_ptr<const HostMemory> of(const Object& object);

    // False if the object ends before the range does.
    bool read(uint64_t offset, std::span<std::byte> ret_bytes) const;
    void write(uint64_t offset, std::span<const std::byte> bytes) const;

    UniqueFd file;
    uint64_t begin;  // of the object in the file
};

// Reads objects one at a time. Each thread has its own, with its own connection.
class ObjectReader {
public:
    explicit ObjectReader(Client client) : client_(std::move(client)) {}

    // Stays open until the next open() or close(). Throws a Failure.
    void open(uint64_t id, const std::string& name);
    void close();
    // False: the object has become shorter. Throws a Failure.
    bool read(uint64_t offset, std::span<std::byte> ret_bytes);
    // The current state. A removed object is a Failure with ENOENT.
    StatInfo stat(uint64_t id, const std::string& name);
    const Client& client() const { return client_; }

private:
    Client client_;
    std::string name_;
    uint64_t id_ = 0;
    Object object_;
    std::unique_ptr<const HostMemory> memory_;
};

}  // namespace gshm::cli

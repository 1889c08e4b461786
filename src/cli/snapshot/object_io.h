// An object's bytes for the threads of snapshot and restore.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cli/support/failure.h"

namespace gshm::cli {

// Memory of the host that is read and written as a file: no copy through gshmd, and one that is made shorter meanwhile is
// a short read instead of a SIGBUS. Null for other devices and for small objects.
struct HostMemory {
    static std::unique_ptr<const HostMemory> of(const Object& object);

    // False: it ends before.
    bool read(uint64_t offset, std::span<std::byte> ret_bytes) const;
    void write(uint64_t offset, std::span<const std::byte> bytes) const;

    UniqueFd file;
    uint64_t begin;  // of the object in the file
};

// Reads objects, one at a time; one thread's, with a connection of its own.
class ObjectReader {
public:
    explicit ObjectReader(Client client) : client_(std::move(client)) {}

    // Stays open until another is, or close(). Throws a Failure.
    void open(uint64_t id, const std::string& name);
    void close();
    // False: the object has become shorter. Throws a Failure.
    bool read(uint64_t offset, std::span<std::byte> ret_bytes);
    // As it is now; -ENOENT among the failures.
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

// The daemon of a mount point, and this process's connection to it: one for all its objects and rings, closed with the
// last of them. Everything that the process made ends with the connection.
#pragma once

#include <memory>
#include <string>

#include "result.h"

namespace gshm::usrbio {

class Daemon {
public:
    // mount_point is a folder in its mount, or its runtime folder. Safe from any thread; a forked child gets its own.
    static Result<std::shared_ptr<Daemon>> find(const char* mount_point);

    const Client& client() const { return client_; }
    // Identifies the daemon as long as its objects exist.
    uint64_t instance() const { return instance_; }

private:
    Daemon(Client client, uint64_t instance) : client_(std::move(client)), instance_(instance) {}

    Client client_;
    uint64_t instance_;
};

}  // namespace gshm::usrbio

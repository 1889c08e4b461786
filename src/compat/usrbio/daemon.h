// The daemon of a mount point, and this process's connection to it: one for all its objects and rings, closed with the
// last of them. Everything that the process made ends with the connection.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "result.h"

namespace gshm::usrbio {

class Daemon {
public:
    // mount_point is a folder in its mount, or its runtime folder. Safe from any thread; a forked child gets its own.
    static Result<std::shared_ptr<Daemon>> find(const char* mount_point);

    const Client& client() const { return client_; }
    // Makes an object whose name no other process uses. If gshmd ends in the middle, it may have made the object: the
    // next gshmd removes it, and makes it again.
    Result<Object> create(const std::string& name, const std::function<Result<Object>()>& make) const;
    // Identifies the daemon as long as its objects exist.
    uint64_t instance() const { return instance_; }

private:
    Daemon(Client client, uint64_t instance) : client_(std::move(client)), instance_(instance) {}

    Client client_;
    uint64_t instance_;
};

}  // namespace gshm::usrbio

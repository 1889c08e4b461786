// The daemon behind a mount point, and this process's connection to it: one for all that is made there, ended when the
// last of it goes. What a process leaves behind goes with its connection.
#pragma once

#include <memory>
#include <string>

#include "result.h"

namespace gshm::usrbio {

class Daemon {
public:
    // mount_point is a folder in its mount or its runtime folder. Safe from any thread; a forked child gets its own.
    static Result<std::shared_ptr<Daemon>> find(const char* mount_point);

    const Client& client() const { return client_; }
    // What distinguishes it from every other, for as long as its objects exist.
    uint64_t instance() const { return instance_; }

private:
    Daemon(Client client, uint64_t instance) : client_(std::move(client)), instance_(instance) {}

    Client client_;
    uint64_t instance_;
};

}  // namespace gshm::usrbio

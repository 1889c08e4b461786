// The side of a takeover that replaces the running gshmd.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"

namespace gshm::core {

class Takeover {
public:
    // Connects to the gshmd of that folder. ECONNREFUSED: none runs.
    static Result<Takeover> create(const std::string& dir);

    // The names of its devices.
    const std::vector<std::string>& devices() const { return devices_; }

    // The folder of its tiers, if it has objects; "": none.
    const std::string& folder() const { return folder_; }

    struct Received {
        UniqueFd listener;
        UniqueFd lock;
    };
    // Requests the takeover. Returns when the other gshmd has stopped all work.
    Result<Received> ask();

private:
    explicit Takeover(UniqueFd socket) : socket_(std::move(socket)) {}

    UniqueFd socket_;
    std::vector<std::string> devices_;
    std::string folder_;
};

}  // namespace gshm::core

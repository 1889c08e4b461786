// Taking the place of a gshmd that runs: from the side of the one that comes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"

namespace gshm::core {

class Takeover {
public:
    // Greets the gshmd of that folder. ECONNREFUSED if there is none.
    static Result<Takeover> create(const std::string& dir);

    // The devices that it has, by name.
    const std::vector<std::string>& devices() const { return devices_; }

    struct Received {
        UniqueFd listener;
        UniqueFd lock;
    };
    // Asks it to go. Returns when it does nothing any more.
    Result<Received> ask();

private:
    explicit Takeover(UniqueFd socket) : socket_(std::move(socket)) {}

    UniqueFd socket_;
    std::vector<std::string> devices_;
};

}  // namespace gshm::core

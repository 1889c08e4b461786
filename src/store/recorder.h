// Told of changes that must outlive the process, so that they are recorded before a client gets a reply.
#pragma once

#include <cstdint>
#include <string_view>

namespace gshm::core {

struct Node;
struct StoredExtent;

// A node or extent is reported once, however often it changes until it is recorded.
class Recorder {
public:
    virtual ~Recorder() = default;
    virtual void changed(Node& node) = 0;
    virtual void erased(const Node& node) = 0;
    // The first call also keeps its memory.
    virtual void changed(StoredExtent& extent) = 0;
    virtual void erased(const StoredExtent& extent) = 0;
    // A named value, such as the limits of a user.
    virtual void set(std::string_view /*name*/, std::string_view /*value*/) {}
};

}  // namespace gshm::core

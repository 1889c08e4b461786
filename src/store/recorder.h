// Who is told of what must outlive the process, so that it can be written down before anyone is answered.
#pragma once

#include <cstdint>

namespace gshm::core {

struct Node;
struct StoredExtent;

// A node or extent is reported once, however often it changes until it is written.
class Recorder {
public:
    virtual ~Recorder() = default;
    virtual void changed(Node& node) = 0;
    virtual void erased(const Node& node) = 0;
    // The first time its memory is to be kept as well.
    virtual void changed(StoredExtent& extent) = 0;
    virtual void erased(const StoredExtent& extent) = 0;
};

}  // namespace gshm::core

// Asynchronous copies between ordinary memory and device memory. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/result.h"

namespace gshm::core {

class Copier {
public:
    virtual ~Copier() = default;
    // Called in a thread of the copier when the copy is complete or has failed. Must not block.
    using Done = std::move_only_function<void(Status)>;

    virtual void copy_in(uint64_t address, const std::byte* source, size_t bytes, Done done) = 0;
    virtual void copy_out(std::byte* destination, uint64_t address, size_t bytes, Done done) = 0;
    virtual void fill(uint64_t address, size_t bytes, uint8_t value, Done done) = 0;
    // Calls the function in the calling thread, with the context that a vendor library needs to find the memory by its
    // address. Returns false if it was not called.
    virtual bool with_context(const std::function<void()>&) { return false; }
};

}  // namespace gshm::core

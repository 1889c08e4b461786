// Copies between ordinary memory and a device's that go on while the caller does something else. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/result.h"

namespace gshm {

class Copier {
public:
    virtual ~Copier() = default;
    // In some thread of the copier's, when the bytes are in place (or are not). Must not wait for anything.
    using Done = std::move_only_function<void(Status)>;

    virtual void copy_in(uint64_t address, const std::byte* source, size_t bytes, Done done) = 0;
    virtual void copy_out(std::byte* destination, uint64_t address, size_t bytes, Done done) = 0;
    virtual void fill(uint64_t address, size_t bytes, uint8_t value, Done done) = 0;
    // Calls it in the calling thread, with what a vendor's library needs to find the memory by its address. False: it was
    // not called.
    virtual bool with_context(const std::function<void()>&) { return false; }
};

}  // namespace gshm

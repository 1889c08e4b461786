// Requests and notices of the mount to the kernel, besides answers. An interface, so that tests can be the kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gshm::core::fuse {

// Safe from any thread.
class KernelRequests {
public:
    virtual ~KernelRequests() = default;

    // Files that the kernel may read and write by itself. Only root may.
    virtual Result<int32_t> open_backing(int fd) = 0;
    // Of a number that it does not know (any more): nothing happens.
    virtual void close_backing(int32_t id) = 0;

    // These are no longer as the kernel remembers them. It is told a little later; see notices.h.
    virtual void forget_entry(uint64_t parent, std::string_view name) = 0;
    virtual void forget_attributes(uint64_t node) = 0;
    // The attributes of all these, and then tells, in another thread, which of them the kernel does not know at all.
    virtual void survey(std::vector<uint64_t> nodes,
                        std::function<void(const std::vector<uint64_t>& unknown)> on_unknown) = 0;
    // All names. False: this kernel cannot do that.
    virtual bool forget_names() = 0;
};

}  // namespace gshm::core::fuse

// Requests and notices of the mount to the kernel, besides answers. An interface, so that tests can replace the kernel.
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

    // Registers a file that the kernel may read and write itself. Only root may.
    virtual Result<int32_t> open_backing(int fd) = 0;
    // No effect for an unknown id.
    virtual void close_backing(int32_t id) = 0;

    // Invalidate a cached entry, or cached attributes. The notice is sent asynchronously; see notices.h.
    virtual void forget_entry(uint64_t parent, std::string_view name) = 0;
    virtual void forget_attributes(uint64_t node) = 0;
    // Invalidates the attributes of all these nodes. Then reports, in another thread, the nodes that the kernel does
    // not know.
    virtual void survey(std::vector<uint64_t> nodes,
                        std::function<void(const std::vector<uint64_t>& unknown)> on_unknown) = 0;
    // Invalidates all cached names. False: this kernel cannot do that.
    virtual bool forget_names() = 0;
};

}  // namespace gshm::core::fuse

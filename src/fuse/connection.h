// The descriptor of a mount: answers, backing files and notices go to the kernel through it. Safe from any thread.
#pragma once

#include "base/fd.h"
#include "base/worker.h"
#include "fuse/call.h"

namespace gshm::fuse {

class Connection final : public Channel {
public:
    explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {}

    int fd() const { return fd_.get(); }
    bool send(std::span<const iovec> parts) override;

    // Files that the kernel may read and write by itself. Only root may.
    Result<int32_t> open_backing(int fd);
    void close_backing(int32_t id);

    // What the kernel remembers is no longer so. Told in a thread of its own: the kernel waits for locks that are held
    // by calls which wait for us.
    void forget_entry(uint64_t parent, std::string_view name);
    void forget_attributes(uint64_t node);
    void forget_bytes(uint64_t node);

private:
    void notify(int32_t code, std::span<const iovec> parts);
    void forget_range(uint64_t node, int64_t offset);

    UniqueFd fd_;
    Worker notices_;  // last: its thread uses the descriptor
};

}  // namespace gshm::fuse

// The descriptor of a mount: answers, backing files and notices go to the kernel through it. Safe from any thread.
#pragma once

#include <atomic>
#include <functional>

#include "base/fd.h"
#include "base/worker.h"
#include "fuse/call.h"

namespace gshm::fuse {

class Connection final : public Channel {
public:
    explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {}

    int fd() const { return fd_.get(); }
    void send(std::span<const iovec> parts) override;

    // Files that the kernel may read and write by itself. Only root may.
    Result<int32_t> open_backing(int fd);
    void close_backing(int32_t id);

    // What the kernel remembers is no longer so. Told in a thread of its own: the kernel waits for locks that are held
    // by calls which wait for us.
    void forget_entry(uint64_t parent, std::string_view name);
    void forget_attributes(uint64_t node);
    // The attributes of all these, and then tells, in that thread, which of them the kernel does not know at all.
    void survey(std::vector<uint64_t> nodes, std::function<void(const std::vector<uint64_t>&)> on_unknown);
    // All names. False: this kernel cannot do that.
    bool forget_names();
    // What was read and not answered comes once more.
    void resend();
    // Returns when all was told, and says no more. While requests are still answered.
    void finish_notices();

private:
    bool write(std::span<const iovec> parts);
    bool forget_attributes_now(uint64_t node);
    bool notify(int32_t code, std::span<const iovec> parts);

    UniqueFd fd_;
    std::atomic<bool> quiet_ = false;
    Worker notices_;  // last: its thread uses the descriptor
};

}  // namespace gshm::fuse

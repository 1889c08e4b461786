// The descriptor of a mount: answers, backing files and notices go to the kernel through it. Safe from any thread.
#pragma once

#include "base/fd.h"
#include "fuse/call.h"
#include "fuse/kernel_requests.h"
#include "fuse/notices.h"

namespace gshm::core::fuse {

class Connection final : public Channel, public KernelRequests {
public:
    explicit Connection(UniqueFd fd) : fd_(std::move(fd)), notices_(fd_.get()) {}

    int fd() const { return fd_.get(); }
    void send(std::span<const iovec> parts) override;

    Result<int32_t> open_backing(int fd) override;
    void close_backing(int32_t id) override;
    void forget_entry(uint64_t parent, std::string_view name) override;
    void forget_attributes(uint64_t node) override;
    void survey(std::vector<uint64_t> nodes, std::function<void(const std::vector<uint64_t>&)> on_unknown) override;
    bool forget_names() override;

    // The kernel sends again the requests that were read but not answered.
    void resend();
    // Returns when all notices are sent; later ones are dropped. Called while requests are still answered.
    void finish_notices() { notices_.finish(); }

private:
    bool write(std::span<const iovec> parts);
    bool tell_now(int32_t code);
    static std::string message(int32_t code, std::string_view body);
    static std::string attributes_message(uint64_t node);

    UniqueFd fd_;
    Notices notices_;
};

}  // namespace gshm::core::fuse

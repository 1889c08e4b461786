// What the mount needs of the daemon, where no device is ever full or lost and nobody waits for anything.
#pragma once

#include "fuse/backend.h"

namespace gshm::test {

class QuietBackend : public fuse::Backend {
public:
    std::unique_ptr<Wait> wait_for_room(DeviceIndex, NodeId) override {
        struct NoWait final : Wait {
            bool next() override { return false; }
        };
        return std::make_unique<NoWait>();
    }
    bool is_worth_waiting(DeviceIndex) override { return false; }
    uint64_t begin_move(DeviceIndex, uint64_t) override { return 0; }
    void end_move(DeviceIndex, uint64_t, bool) override {}
    uint64_t used_bytes(DeviceIndex) override { return 0; }
    Status check(DeviceIndex) override { return {}; }
    void report(DeviceIndex, const Error&) override {}
    void appeared(const Node&) override {}
    bool can_record() const override { return true; }
    bool may_use_io_uring() const override { return false; }
};

}  // namespace gshm::test

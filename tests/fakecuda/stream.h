// fakecuda, a test double of NVIDIA's driver: streams that are not the default ones do their work later, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>

#include "call.h"

namespace fakecuda {

// False: an address was wrong. Runs without the lock, and is dropped under it.
using Work = std::function<bool()>;

// The work on one stream, and the thread that executes it. All members under the lock of the state.
class Lane {
public:
    static std::shared_ptr<Lane> create(Device& device);

    void put(Work work);
    uint64_t ticket() const { return put_; }  // of the last work
    bool is_done(uint64_t ticket) const { return done_ >= ticket; }
    void wait(std::unique_lock<std::mutex>& lock, uint64_t ticket);
    // Queued work is still executed, as the driver does when a stream is destroyed.
    void end();
    void hold(bool held);

private:
    explicit Lane(Device& device) : device_(device) {}
    void run();

    Device& device_;
    std::deque<Work> work_;
    uint64_t put_ = 0;
    uint64_t done_ = 0;
    bool ending_ = false;
    bool held_ = false;
    std::condition_variable changed_;
};

// nullptr: a default stream.
Lane* lane_of(CUstream stream);

// Until the call's own work on that stream may begin: all that is on the stream is done and, for the legacy default
// stream, all that is on streams which do not ask to be left out of this.
void wait_for_turn(Call& call, CUstream stream);

}  // namespace fakecuda

// A queue in front of another one that fails some requests or completes them partially, as kernels and disks do.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>

#include "io/queue.h"

namespace gshm::core::io::test {

class FaultyQueue final : public Queue {
public:
    // Called for every request, with its number from 0. A negative result is the error, 0 the end of file or a full
    // disk; a positive result limits the bytes. Empty: the request passes unchanged.
    using Decide = std::function<std::optional<int32_t>(const Request&, uint64_t number)>;

    FaultyQueue(std::unique_ptr<Queue> below, Decide decide) : below_(std::move(below)), decide_(std::move(decide)) {}

    void submit(const Request& request) override {
        auto decided = decide_(request, number_++);
        if (!decided) return below_->submit(request);
        if (*decided <= 0) {
            answers_.push_back({request.tag, *decided});
            return;
        }
        Request part = request;
        part.bytes = std::min(part.bytes, static_cast<uint32_t>(*decided));
        below_->submit(part);
    }
    Status watch(int fd, uint64_t tag) override { return below_->watch(fd, tag); }
    void unwatch(int fd, uint64_t tag) override { below_->unwatch(fd, tag); }
    size_t wait(std::span<Event> events, bool block) override {
        size_t taken = 0;
        while (!answers_.empty() && taken < events.size()) {
            events[taken++] = answers_.front();
            answers_.pop_front();
        }
        return taken + below_->wait(events.subspan(taken), block && taken == 0);
    }
    bool is_uring() const override { return below_->is_uring(); }

private:
    std::unique_ptr<Queue> below_;
    Decide decide_;
    uint64_t number_ = 0;
    std::deque<Event> answers_;
};

}  // namespace gshm::core::io::test

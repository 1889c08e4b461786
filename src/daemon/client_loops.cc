#include "daemon/client_loops.h"

#include <algorithm>

namespace gshm::core {

Result<std::unique_ptr<ClientLoops>> ClientLoops::create(unsigned threads) {
    constexpr unsigned kMost = 12;
    // Leaves cores to the clients.
    if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency() * 3 / 4, 2u, kMost);
    std::unique_ptr<ClientLoops> made(new ClientLoops);
    made->loops_.resize(threads);
    for (Loop& each : made->loops_) each.loop = TRY(EventLoop::create(EventLoop::Locking::none));
    for (Loop& each : made->loops_) each.thread = std::thread([&loop = *each.loop] { loop.run(); });
    return made;
}

ClientLoops::~ClientLoops() {
    stop();
}

EventLoop& ClientLoops::next() {
    return *loops_[next_.fetch_add(1, std::memory_order_relaxed) % loops_.size()].loop;
}

namespace {

struct Round {
    Round(EventLoop& to, EventLoop::Task then, size_t loops) : loop(to), task(std::move(then)), left(loops) {}
    // Passes through a loop that many times: a client may have sent several packets, and its end takes three rounds.
    void pass(EventLoop& through, int rounds, const std::shared_ptr<Round>& self) {
        through.post([&through, rounds, self] {
            if (rounds > 1) self->pass(through, rounds - 1, self);
            else if (self->left.fetch_sub(1) == 1) self->loop.post(std::move(self->task));
        });
    }
    EventLoop& loop;
    EventLoop::Task task;
    std::atomic<size_t> left;
};

}  // namespace

void ClientLoops::after_arrived(EventLoop& loop, EventLoop::Task task) {
    constexpr int kRounds = 4;
    auto round = std::make_shared<Round>(loop, std::move(task), loops_.size());
    for (Loop& each : loops_) round->pass(*each.loop, kRounds, round);
}

void ClientLoops::stop() {
    for (Loop& each : loops_) {
        if (each.loop) each.loop->stop();  // else the start has failed
    }
    for (Loop& each : loops_) {
        if (each.thread.joinable()) each.thread.join();
    }
}

}  // namespace gshm::core

// The part of a ring that this process serves: transfers with memory that no daemon owns. A few engines serve all rings
// of the process.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "io/engine.h"
#include "ring/layout.h"

namespace gshm::core::client {

class LocalRing final : private io::Source {
public:
    // The kind of staging that the memory needs; see kind_of(). The first ring of a kind starts an engine.
    enum Kind { kOrdinary, kStaged, kPinned, kKinds };
    static Kind kind_of(Extent& memory, const Device& device) {
        return memory.copier() == nullptr ? kOrdinary : device.info().pins ? kPinned : kStaged;
    }
    // `device` is of that kind. `word` changes with every completion, which also wakes it.
    static Result<std::unique_ptr<LocalRing>> create(Kind kind, Device& device, std::atomic<uint32_t>& word);
    // No transfer is under way.
    ~LocalRing() override;

    struct Request {
        uint32_t token = 0;
        io::Direction direction = io::Direction::read;
        std::shared_ptr<io::File> file;
        uint64_t file_offset = 0;
        uint64_t address = 0;
        Copier* copier = nullptr;
        uint64_t bytes = 0;
    };
    void push(Request request) EXCLUDES(mutex_);
    bool take(ring::Completion* ret_completion) EXCLUDES(mutex_);
    bool has_completions() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return !completions_.empty();
    }

private:
    struct Job;

    LocalRing(io::Engine& engine, UniqueFd doorbell, std::atomic<uint32_t>& word)
        : engine_(engine), doorbell_(std::move(doorbell)), completed_(word) {}
    int doorbell() const override { return doorbell_.get(); }
    bool poll() override EXCLUDES(mutex_);
    void sleep(bool asleep) override EXCLUDES(mutex_);
    void end(std::unique_ptr<Job> job, const Result<uint64_t>& bytes) EXCLUDES(mutex_);

    io::Engine& engine_;
    UniqueFd doorbell_;
    std::atomic<uint32_t>& completed_;

    Mutex mutex_;
    bool asleep_ GUARDED_BY(mutex_) = true;
    std::deque<Request> waiting_ GUARDED_BY(mutex_);
    std::deque<ring::Completion> completions_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core::client

#include "memory/allocate.h"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "memory/freed_extents.h"

namespace gshm::core {

using Next = AllocationSteps::Next;

namespace {

bool is_full(const Status& status) {
    return !status && status.error().code == ENOSPC;
}

}  // namespace

Next AllocationSteps::attempted(const Status& status) {
    return is_full(status) ? Next::wait : Next::end;
}

Next AllocationSteps::waited(bool freed) {
    if (freed) return Next::attempt;
    if (bytes_ == least_bytes_) return Next::end;
    bytes_ = least_bytes_;
    return Next::attempt;
}

// Kept alive by the callbacks that refer to it.
class Allocator::InLoop : public std::enable_shared_from_this<InLoop> {
public:
    InLoop(Allocator& allocator, const AllocationRequest& request, Done done)
        : allocator_(allocator),
          request_(request),
          steps_(request.size_bytes, request.min_bytes),
          claim_{.device = request.device, .bytes = request.size_bytes, .returns = request.returns},
          done_(std::move(done)) {}

    void attempt() {
        auto memory = std::make_shared<std::shared_ptr<Extent>>();
        allocator_.devices_.submit(
            request_.device,
            [self = shared_from_this(), memory, bytes = steps_.bytes()](Device&) -> Status {
                const AllocationRequest& request = self->request_;
                *memory = TRY(self->allocator_.attempt(request.device, bytes, request.options, request.maps));
                return {};
            },
            [self = shared_from_this(), memory](Status status) {
                store_lock.assert_held();
                self->attempted(std::move(*memory), std::move(status));
            });
    }

private:
    void attempted(std::shared_ptr<Extent> memory, Status status) REQUIRES(store_lock) {
        if (AllocationSteps::attempted(status) == Next::end) return end(std::move(memory), status);
        // A new wait: the first one may not cover the objects that leave now.
        const bool leaving = allocator_.make_room(claim_);
        if (!wait_ || leaving) wait_ = allocator_.departures_.wait(request_.device, request_.waiting);
        allocator_.departures_.next(wait_, [self = shared_from_this(), status = std::move(status)](bool freed) {
            store_lock.assert_held();
            const bool again = freed || self->allocator_.is_making_room(self->claim_);
            if (self->steps_.waited(again) == Next::attempt) self->attempt();
            else self->end(nullptr, status);
        });
    }
    void end(std::shared_ptr<Extent> memory, Status status) REQUIRES(store_lock) {
        allocator_.end_claim(claim_, status);
        if (!status) return done_(std::unexpected(status.error()));
        done_(std::move(memory));
    }

    Allocator& allocator_;
    const AllocationRequest request_;
    AllocationSteps steps_;
    RoomMaker::Claim claim_;
    Done done_;
    std::shared_ptr<Departures::Wait> wait_;  // null: the device has not refused an attempt
};

void Allocator::allocate(const AllocationRequest& request, Done done) {
    auto allocation = std::make_shared<InLoop>(*this, request, std::move(done));
    departures_.wait_for_pile(request.device, request.uid, request.size_bytes, [allocation] { allocation->attempt(); });
}

void Allocator::wait_for_pile(const AllocationRequest& request) {
    // The promise is shared, since the loop may have ended and never run the task.
    auto answer = std::make_shared<std::promise<void>>();
    auto answered = answer->get_future();
    scheduler_.post([&departures = departures_, request, answer] {
        store_lock.assert_held();
        departures.wait_for_pile(request.device, request.uid, request.size_bytes, [answer] { answer->set_value(); });
    });
    (void)answered.wait_for(Departures::kPatience + std::chrono::seconds(1));
}

bool Allocator::make_room(RoomMaker::Claim& claim) {
    return room_maker_ != nullptr && !departures_.has_given_up() && room_maker_->make_room(claim);
}

bool Allocator::is_making_room(const RoomMaker::Claim& claim) const {
    return room_maker_ != nullptr && !departures_.has_given_up() && room_maker_->is_making_room(claim);
}

void Allocator::end_claim(RoomMaker::Claim& claim, Status& status) {
    if (room_maker_ == nullptr) return;
    if (is_full(status)) status.error().message += room_maker_->why_full(claim);
    room_maker_->end(claim);
}

Status Allocator::run(RoomMaker::Claim claim, NodeId waiting, AllocationSteps steps,
                      const std::function<Status(uint64_t bytes)>& attempt, const OnWait& on_wait) {
    Status status = attempt(steps.bytes());
    if (AllocationSteps::attempted(status) != Next::wait || !on_wait(true)) return status;
    auto leaving = [&] {
        StoreLock lock(scheduler_.store_mutex());
        return make_room(claim);
    };
    auto still_leaving = [&] {
        StoreLock lock(scheduler_.store_mutex());
        return is_making_room(claim);
    };
    std::optional<Departures::Blocking> wait;
    do {
        // A new wait: the first one may not cover the objects that leave now.
        if (leaving() || !wait) wait.emplace(scheduler_, departures_, claim.device, waiting);
        bool freed = wait->next();
        if (freed) devices_.wait_for_reclaimed(claim.device);
        else freed = still_leaving();
        if (steps.waited(freed) != Next::attempt) break;
        status = attempt(steps.bytes());
    } while (AllocationSteps::attempted(status) == Next::wait);
    {
        StoreLock lock(scheduler_.store_mutex());
        end_claim(claim, status);
    }
    on_wait(false);
    return status;
}

Result<std::shared_ptr<Extent>> Allocator::allocate_blocking(const AllocationRequest& request) {
    wait_for_pile(request);
    std::shared_ptr<Extent> memory;
    TRY(run(
        {.device = request.device, .bytes = request.size_bytes, .returns = request.returns}, request.waiting,
        {request.size_bytes, request.min_bytes},
        [&](uint64_t bytes) -> Status {
            memory = TRY(attempt(request.device, bytes, request.options, request.maps));
            return {};
        },
        [](bool) { return true; }));
    return memory;
}

Status Allocator::retry(DeviceIndex device, NodeId waiting, const std::function<Status()>& operation,
                        const OnWait& on_wait, uint64_t bytes) {
    Status status =
        run({.device = device, .bytes = bytes}, waiting, {0, 0}, [&](uint64_t) { return operation(); }, on_wait);
    if (!is_full(status) || devices_.device(device).unaccounted_bytes() == 0 || !on_wait(true)) return status;
    // The kernel announces nothing: a process whose close() was reported may still hold the memory for a moment.
    const auto deadline = std::chrono::steady_clock::now() + Departures::kNamelessPatience;
    while (is_full(status) && devices_.device(device).unaccounted_bytes() > 0 && !departures_.has_given_up() &&
           std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        status = operation();
    }
    if (is_full(status)) status = operation();  // the last bytes may have been freed after the last attempt
    on_wait(false);
    return status;
}

bool Allocator::may_reuse(DeviceIndex device, const AllocateOptions& options) {
    // Kept memory was not allocated by gshm-maker.
    const bool has_handles = (devices_.device(device).info().handle_kinds & kHandleFabric) != 0;
    return !(options.lasting_handle && has_handles);
}

Result<std::shared_ptr<Extent>> Allocator::attempt(DeviceIndex device, uint64_t bytes, const AllocateOptions& options,
                                                   SessionId maps) {
    auto memory = attempt_anyhow(device, bytes, options, maps);
    if (memory && room_maker_ != nullptr) room_maker_->allocated(device);
    return memory;
}

Result<std::shared_ptr<Extent>> Allocator::attempt_anyhow(DeviceIndex device, uint64_t bytes,
                                                          const AllocateOptions& options, SessionId maps) {
    FreedExtents& kept = devices_.freed();
    const bool reuses = may_reuse(device, options);
    if (reuses) {
        if (auto freed = kept.take(device, bytes, options.compressible, maps)) return freed;
    }
    auto allocated = attempt_at_once(device, bytes, options);
    if (!allocated && allocated.error().code == ENOSPC) {
        // Memory that fits may have been freed meanwhile.
        FreedExtents::Memory dropped;
        if (!reuses) dropped = kept.drop(device);
        else if (auto freed = kept.take_or_drop(device, bytes, options.compressible, maps, &dropped)) return freed;
        dropped.clear();
        devices_.wait_for_reclaimed(device);
        allocated = attempt_at_once(device, bytes, options);
    }
    if (allocated) return allocated;
    report(device, allocated.error());
    return std::unexpected(explain_descriptor_limit(allocated.error()));
}

Result<std::shared_ptr<Extent>> Allocator::attempt_at_once(DeviceIndex device, uint64_t bytes,
                                                           const AllocateOptions& options) {
    std::shared_ptr<Extent> extent = TRY(devices_.device(device).allocate(bytes, options));
    if (!options.shared || extent->file() != nullptr) return extent;
    // Exporting is the slow part of sharing, so it is done here. The extent still exists at this point, so a lack of
    // descriptors is distinguished from a lack of memory.
    auto descriptor = extent->descriptor(Access::write);
    if (!descriptor) return std::unexpected(explain_descriptor_limit(descriptor.error()));
    return extent;
}

void Allocator::wait_for_departures(DeviceIndex device, NodeId waiting, uid_t uid,
                                    const std::function<uint64_t()>& free_bytes) {
    Departures::Blocking wait(scheduler_, departures_, device, waiting);
    while (wait.next()) {
        devices_.wait_for_reclaimed(device);
        StoreLock lock(scheduler_.store_mutex());
        if (!departures_.is_worth_waiting(device, free_bytes(), uid)) break;
    }
}

void Allocator::report(DeviceIndex device, const Error& error) {
    if (!error.device_lost) return;
    scheduler_.post([&devices = devices_, device, error] {
        store_lock.assert_held();
        devices.report(device, error);
    });
}

}  // namespace gshm::core

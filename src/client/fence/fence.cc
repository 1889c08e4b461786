// gshm.h: fences. gshmd creates the page and admits the publisher. Afterwards the processes share the page without
// gshmd.
#include <map>
#include <ranges>
#include <set>
#include <thread>

#include "base/log.h"
#include "client/api.h"
#include "fence/page.h"

using namespace gshm::core;
using namespace gshm::core::client;

struct gshm_fence {
    uint64_t generation = fork_count();
    gshm_object* object = nullptr;  // held; may be gone in a forked child
    Mapping mapping;
    fence::View page;
    bool writes = false;
    std::unique_ptr<Streams> streams;  // of the memory's device, with the page registered; null: the device has none
    uint64_t last_published = 0;       // through this handle
    std::map<uint64_t, Streams::Mark> waiting;  // by stream number: recorded after the last wait

    std::span<std::byte> memory() const { return {mapping.data(), mapping.size()}; }
    Status check_stream(const void* stream) const {
        return check_argument(stream == nullptr || object->local != nullptr,
                              "a handle without a mapping has no streams");
    }
    // The stream reads the page when it reaches the wait, which may be after this handle is closed.
    Status hold(void* stream, uint64_t wanted);
    Result<uint64_t> publish(void* stream);
    Status wait(void* stream, uint64_t wanted, fence::View::Deadline deadline);
};

Status gshm_fence::hold(void* stream, uint64_t wanted) {
    const uint64_t number = TRY(streams->identify(stream));
    TRY(streams->hold(stream, page.done_word(), wanted));
    auto known = waiting.find(number);
    if (known != waiting.end()) return streams->record(stream, known->second);
    waiting[number] = TRY(streams->record(stream));
    return {};
}

Result<uint64_t> gshm_fence::publish(void* stream) {
    TRY(check_argument(writes, "the fence was not opened for publishing: use GSHM_WRITE"));
    TRY(check_stream(stream));
    const uint64_t next = page.next();
    if (streams == nullptr) {
        // The caller's own work is complete. Earlier generations may not be, and their counts must not come after this
        // one.
        TRY(page.await_end(next - 1, fence::View::Deadline::max()));
        page.done_word().store(next, std::memory_order_release);
        page.promise(next);
        return next;
    }
    // Generations complete in order, even if they come from different streams.
    if (!page.is_settled()) TRY(streams->hold(stream, page.done_word(), next - 1));
    TRY(streams->signal(stream, page.done_word(), next));
    page.promise(next);
    last_published = next;
    return next;
}

Status gshm_fence::wait(void* stream, uint64_t wanted, fence::View::Deadline deadline) {
    TRY(check_stream(stream));
    // The CPU waits for the promise: GPU work that waits for a publisher that has not started would block other work.
    TRY(page.await_promise(wanted, deadline));
    if (page.done() >= wanted) return page.check_lost(wanted);
    if (streams == nullptr) return page.await_done(wanted, deadline);
    return hold(stream, wanted);
}

namespace {

// Pages of closed fences. The GPU may still access them, so they are unregistered later.
class ClosedFences {
public:
    void add(Device& device, gshm_fence& fence) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        fences_.push_back({&device, std::move(fence.mapping), std::move(fence.streams), fence.last_published,
                           std::move(fence.waiting)});
        std::erase_if(fences_, [](Closed& one) { return one.let_go(); });
    }

private:
    struct Closed {
        Device* device;
        Mapping mapping;
        std::unique_ptr<Streams> streams;
        uint64_t last_published;
        std::map<uint64_t, Streams::Mark> waiting;

        // False: the GPU may still access the page.
        bool let_go() {
            if (fence::View(mapping).done() < last_published) return false;
            if (!std::ranges::all_of(waiting, [&](const auto& one) { return streams->is_passed(one.second); }))
                return false;
            for (auto [number, mark] : waiting) streams->drop(mark);
            device->unregister_host_memory({mapping.data(), mapping.size()});
            return true;
        }
    };

    Mutex mutex_;
    std::vector<Closed> fences_ GUARDED_BY(mutex_);
};

// The objects that this process publishes on. gshmd distinguishes sessions, but not the handles of one session.
class Publishers {
public:
    Status add(const gshm_object& object) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        if (objects_.emplace(object.core.get(), object.id).second) return {};
        return fail(EBUSY, "this process already publishes on this fence");
    }
    void remove(const gshm_object& object) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        objects_.erase({object.core.get(), object.id});
    }

private:
    Mutex mutex_;
    std::set<std::pair<const Core*, uint64_t>> objects_ GUARDED_BY(mutex_);
};

// The timeout for a publisher that is just ending.
constexpr std::chrono::seconds kEndingPatience{10};
constexpr std::chrono::milliseconds kAskAgain{5};

Result<UniqueFd> ask_for_page(gshm_object& object, bool write) {
    const auto deadline = std::chrono::steady_clock::now() + kEndingPatience;
    for (;;) {
        auto answer = object.core->connection().call_on(
            object.key.epoch, wire::RequestBody::OpenFence,
            [&](auto& out) { return wire::CreateOpenFence(out, object.id, write).Union(); }, Lost::retry);
        if (answer) {
            if (answer->descriptors.empty()) return fail(EPROTO, "gshmd answered without the fence");
            return std::move(answer->descriptors[0]);
        }
        if (answer.error().code != EAGAIN || std::chrono::steady_clock::now() >= deadline) {
            return std::unexpected(answer.error());
        }
        std::this_thread::sleep_for(kAskAgain);
    }
}

Result<std::unique_ptr<gshm_fence>> open_fence(gshm_object& object, bool write) {
    TRY(check_argument(object.core != nullptr, "only objects of a daemon have fences"));
    if (write) TRY(check_writable(object));
    auto fence = std::make_unique<gshm_fence>();
    fence->object = &object;
    fence->writes = write;
    if (object.local != nullptr) fence->streams = TRY(object.local->make_streams());
    auto file = TRY(ask_for_page(object, write));
    TRY(fence::check_layout(file.get()));
    fence->mapping = TRY(Mapping::create(file.get(), fence::kPageBytes, write || fence->streams != nullptr));
    fence->page = fence::View(fence->mapping);
    if (fence->streams != nullptr) {
        if (auto registered = object.local->register_host_memory(fence->memory()); !registered) {
            if (write) fence->page.leave();
            return std::unexpected(registered.error());
        }
    }
    return fence;
}

Status check_use(const gshm_fence* fence) {
    TRY(check_argument(fence != nullptr, "fence is NULL"));
    return check_fork_count(fence->generation);
}

template <typename Body>
int with_fence(gshm_fence* fence, Body&& body) {
    return guarded([&]() -> Status {
        TRY(check_use(fence));
        return body(*fence);
    });
}

fence::View::Deadline deadline_of(int timeout_ms) {
    if (timeout_ms < 0) return fence::View::Deadline::max();
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

}  // namespace

extern "C" {

int gshm_fence_open(gshm_object* object, uint32_t flags, gshm_fence** ret_fence) noexcept {
    return with_object(object, [&](gshm_object& of) -> Status {
        TRY(check_argument(ret_fence != nullptr, "ret_fence is NULL"));
        TRY(check_flags(flags, GSHM_FENCE_WRITE, "fence"));
        const bool write = (flags & GSHM_FENCE_WRITE) != 0;
        if (write) TRY(per_process<Publishers>().add(of));
        auto fence = open_fence(of, write);
        if (!fence) {
            if (write) per_process<Publishers>().remove(of);
            return std::unexpected(fence.error());
        }
        hold_object(of);
        *ret_fence = fence->release();
        return {};
    });
}

int gshm_fence_publish(gshm_fence* fence, void* stream, uint64_t* ret_generation) noexcept {
    return with_fence(fence, [&](gshm_fence& one) -> Status {
        const uint64_t generation = TRY(one.publish(stream));
        if (ret_generation != nullptr) *ret_generation = generation;
        return {};
    });
}

int gshm_fence_wait(gshm_fence* fence, void* stream, uint64_t generation, int timeout_ms,
                    uint64_t* ret_generation) noexcept {
    return with_fence(fence, [&](gshm_fence& one) -> Status {
        const uint64_t wanted = generation != 0 ? generation : std::max<uint64_t>(one.page.published(), 1);
        TRY(one.wait(stream, wanted, deadline_of(timeout_ms)));
        if (ret_generation != nullptr) *ret_generation = wanted;
        return {};
    });
}

int gshm_fence_check(gshm_fence* fence, uint64_t generation) noexcept {
    return with_fence(fence, [&](gshm_fence& one) -> Status {
        if (one.page.done() >= generation) return one.page.check_lost(generation);
        return fail(EAGAIN, "generation {} is not done yet", generation);
    });
}

uint64_t gshm_fence_published(const gshm_fence* fence) noexcept {
    return fence != nullptr && fence->generation == fork_count() ? fence->page.published() : 0;
}

void gshm_fence_close(gshm_fence* fence) noexcept {
    if (fence == nullptr) return;
    guarded([&]() -> Status {
        std::unique_ptr<gshm_fence> gone(fence);
        TRY(check_use(fence));  // in a forked child, the page and the object are gone
        if (fence->writes) {
            fence->page.leave();
            per_process<Publishers>().remove(*fence->object);
        }
        if (fence->streams != nullptr) per_process<ClosedFences>().add(*fence->object->local, *fence);
        let_go_of_object(fence->object);
        return {};
    });
}

}  // extern "C"

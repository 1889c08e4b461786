// fakecuda, a test double of NVIDIA's driver: streams and events.
#include "stream.h"

#include <atomic>
#include <thread>
#include <unistd.h>
#include <vector>

#include "config.h"

namespace fakecuda {

std::shared_ptr<Lane> Lane::create(Device& device) {
    std::shared_ptr<Lane> made(new Lane(device));
    std::thread([made] { made->run(); }).detach();
    return made;
}

void Lane::put(Work work) {
    work_.push_back(std::move(work));
    ++put_;
    changed_.notify_all();
}

void Lane::wait(std::unique_lock<std::mutex>& lock, uint64_t ticket) {
    changed_.wait(lock, [&] { return is_done(ticket); });
}

void Lane::end() {
    ending_ = true;
    changed_.notify_all();
}

void Lane::hold(bool held) {
    held_ = held;
    changed_.notify_all();
}

void Lane::run() {
    std::unique_lock lock(state().mutex);
    for (;;) {
        changed_.wait(lock, [&] { return !held_ && (ending_ || !work_.empty()); });
        if (work_.empty()) return;
        Work work = std::move(work_.front());
        work_.pop_front();
        lock.unlock();
        usleep(config().copy_delay_us);
        const bool good = work();
        lock.lock();
        work = nullptr;
        if (!good && device_.lost == kSuccess) device_.lost = kErrorIllegalAddress;
        ++done_;
        changed_.notify_all();
    }
}

Lane* lane_of(CUstream stream) {
    return state().streams.contains(stream) ? stream->lane.get() : nullptr;
}

void wait_for_turn(Call& call, CUstream stream) {
    std::vector<std::shared_ptr<Lane>> before;
    for (CUstream other : state().streams) {
        const bool same_context = other->context == &call.context_device().context;
        if (other == stream || (lane_of(stream) == nullptr && same_context && other->flags == 0)) {
            before.push_back(other->lane);
        }
    }
    for (auto& lane : before) lane->wait(call.lock(), lane->ticket());
}

int fakecuda_hold(CUstream stream, int held) {
    const std::lock_guard lock(state().mutex);
    Lane* lane = lane_of(stream);
    if (lane != nullptr) lane->hold(held != 0);
    return lane != nullptr ? 0 : -1;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    Call call(Symbol::cuStreamCreate, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (stream == nullptr || flags > kStreamNonBlocking) return kErrorInvalidValue;
    Device& device = call.context_device();
    static unsigned long long last_id = 100;
    *stream = new CUstream_st{&device.context, flags, Lane::create(device), ++last_id};
    state().streams.insert(*stream);
    return kSuccess;
}

// The default streams cannot be destroyed. This check comes before that of the context.
CUresult cuStreamDestroy_v2(CUstream stream) {
    Call call(Symbol::cuStreamDestroy_v2, Scope::context);
    const bool ours = call.admitted() && state().streams.contains(stream);
    if (ours) call.use(stream->context);
    CUresult refused = call.refusal();
    if (call.admitted() && !ours && (refused == kSuccess || refused == kErrorInvalidContext))
        return kErrorInvalidHandle;
    if (refused != kSuccess) return refused;
    state().streams.erase(stream);
    stream->lane->end();
    delete stream;
    return kSuccess;
}

CUresult cuStreamSynchronize(CUstream stream) {
    Call call(Symbol::cuStreamSynchronize, Scope::context);
    const bool known = call.use_stream(stream);
    if (CUresult refused = call.refusal()) return refused;
    if (!known) return kErrorInvalidHandle;
    wait_for_turn(call, stream);
    return call.context_device().lost;
}

namespace {

// Of registered host memory, where the driver would take memory of the device as well.
CUresult put_value_work(Symbol symbol, CUstream stream, CUdeviceptr address, unsigned flags, Work work) {
    Call call(symbol, Scope::context);
    const bool known = call.use_stream(stream);
    if (CUresult refused = call.refusal()) return refused;
    if (!known) return kErrorInvalidHandle;
    if (flags != 0 || address % sizeof(uint64_t) != 0 || !state().is_registered(reinterpret_cast<void*>(address)))
        return kErrorInvalidValue;
    if (Lane* lane = lane_of(stream)) {
        lane->put(std::move(work));
        return kSuccess;
    }
    wait_for_turn(call, stream);
    call.unlock();
    work();
    call.relock();
    return kSuccess;
}

}  // namespace

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
    return put_value_work(Symbol::cuStreamWriteValue64_v2, stream, address, flags, [=] {
        __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
        return true;
    });
}

// At least the value is all that flags can say here.
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
    return put_value_work(Symbol::cuStreamWaitValue64_v2, stream, address, flags, [=] {
        while (__atomic_load_n(reinterpret_cast<uint64_t*>(address), __ATOMIC_ACQUIRE) < value) usleep(20);
        return true;
    });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
    constexpr unsigned kInterprocess = 4;
    Call call(Symbol::cuEventCreate, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (event == nullptr || flags >= 2 * kInterprocess) return kErrorInvalidValue;
    if ((flags & kInterprocess) != 0 && (flags & kEventDisableTiming) == 0) return kErrorInvalidValue;
    *event = new CUevent_st{&call.context_device().context, nullptr, 0};
    state().events.insert(*event);
    return kSuccess;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    Call call(Symbol::cuEventRecord, Scope::context);
    const bool known = call.use_stream(stream);
    if (CUresult refused = call.refusal()) return refused;
    if (!known || !state().events.contains(event)) return kErrorInvalidHandle;
    if (event->context != &call.context_device().context) return kErrorInvalidHandle;
    if (lane_of(stream) == nullptr) wait_for_turn(call, stream);
    event->lane = lane_of(stream) == nullptr ? nullptr : stream->lane;
    event->ticket = event->lane == nullptr ? 0 : event->lane->ticket();
    return kSuccess;
}

namespace {

// Events are asked about without a current context, too.
CUresult use_event(Call& call, CUevent event) {
    const bool known = call.admitted() && state().events.contains(event);
    if (known) call.use(event->context);
    CUresult refused = call.refusal();
    if (call.admitted() && !known && (refused == kSuccess || refused == kErrorInvalidContext))
        return kErrorInvalidHandle;
    return refused;
}

}  // namespace

CUresult cuEventSynchronize(CUevent event) {
    Call call(Symbol::cuEventSynchronize, Scope::context);
    if (CUresult refused = use_event(call, event)) return refused;
    // The event may be recorded again, or destroyed, during the wait.
    if (auto lane = event->lane) lane->wait(call.lock(), event->ticket);
    return call.context_device().lost;
}

CUresult cuEventQuery(CUevent event) {
    Call call(Symbol::cuEventQuery, Scope::context);
    if (CUresult refused = use_event(call, event)) return refused;
    return event->lane == nullptr || event->lane->is_done(event->ticket) ? kSuccess : kErrorNotReady;
}

// The stream waits for the event's state at this call. A default stream works synchronously, so the call waits.
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    Call call(Symbol::cuStreamWaitEvent, Scope::context);
    const bool known = call.use_stream(stream);
    if (CUresult refused = call.refusal()) return refused;
    if (!known || !state().events.contains(event)) return kErrorInvalidHandle;
    if (flags > 1) return kErrorInvalidValue;
    auto before = event->lane;
    const uint64_t ticket = event->ticket;
    if (before == nullptr || before->is_done(ticket)) return kSuccess;
    if (lane_of(stream) == nullptr) {
        before->wait(call.lock(), ticket);
        return call.context_device().lost;
    }
    stream->lane->put([before, ticket] {
        std::unique_lock lock(state().mutex);
        before->wait(lock, ticket);
        return true;
    });
    return kSuccess;
}

// The legacy default stream's is 1; each thread has one for its own.
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
    static std::atomic<unsigned long long> threads = 1ull << 32;
    thread_local const unsigned long long mine = ++threads;
    Call call(Symbol::cuStreamGetId, Scope::context);
    const bool known = call.use_stream(stream);
    if (CUresult refused = call.refusal()) return refused;
    if (!known) return kErrorInvalidHandle;
    if (id == nullptr) return kErrorInvalidValue;
    if (lane_of(stream) != nullptr) *id = stream->id;
    else *id = reinterpret_cast<uintptr_t>(stream) == kStreamPerThread ? mine : 1;
    return kSuccess;
}

CUresult cuEventDestroy_v2(CUevent event) {
    Call call(Symbol::cuEventDestroy_v2, Scope::context);
    if (CUresult refused = use_event(call, event)) return refused;
    state().events.erase(event);
    delete event;
    return kSuccess;
}

}  // namespace fakecuda

#include "buffer.h"
#include "status.h"
#include <gshm/mirror.hpp>

namespace vineyard {
namespace detail {

struct MirrorState {
    std::shared_ptr<BufferState> buffer;
    gshm::Mirror mirror;
    bool writable = false;

    // Called with the buffer's mutex held.
    Status flush() {
        if (!writable) return Status::OK();
        if (auto flushed = mirror.flush(); !flushed) {
            const gshm::Error error = std::move(flushed).error();
            return error.code == EPERM ? Status::ObjectSealed(error.message) : to_status(error);
        }
        return Status::OK();
    }
};

}  // namespace detail

CUDABufferMirror::CUDABufferMirror(Buffer& buffer, const bool initializing)
    : state_(std::make_unique<detail::MirrorState>()) {
    const auto& of = buffer.state_;
    std::lock_guard lock(of->mutex);
    const bool writable = of->writable;
    if (!writable && !initializing) {
        throw std::runtime_error("CUDABufferMirror: " + ObjectIDToString(of->id) +
                                 " is immutable: `initializing` must be true, or the mirror has nothing to show");
    }
    // Always loaded: all of it is written back, and untouched bytes would otherwise be those of earlier mirrors,
    // perhaps of private buffers.
    auto mirror = gshm::Mirror::create(of->object, {.load = true, .write = writable});
    if (!mirror) {
        throw std::runtime_error("CUDABufferMirror: " + ObjectIDToString(of->id) + ": " + mirror.error().message);
    }
    state_->buffer = of;
    state_->mirror = *std::move(mirror);
    state_->writable = writable;
}

CUDABufferMirror::~CUDABufferMirror() {
    std::lock_guard lock(state_->buffer->mutex);
    try {
        if (const Status flushed = state_->flush(); !flushed.ok()) {
            detail::log_line("error", "changes in a mirror of " + ObjectIDToString(state_->buffer->id) +
                                          " are lost: " + flushed.ToString());
            state_->mirror.unmark();
        }
    } catch (const std::exception&) {  // out of memory for the message
        state_->mirror.unmark();
    }
    state_->mirror = {};
}

const uint8_t* CUDABufferMirror::data() const noexcept {
    return reinterpret_cast<const uint8_t*>(state_->mirror.data());
}

uint8_t* CUDABufferMirror::mutable_data() noexcept {
    if (!state_->writable) return nullptr;
    std::lock_guard lock(state_->buffer->mutex);
    try {
        auto all = state_->mirror.writable();
        return all ? reinterpret_cast<uint8_t*>(all->data()) : nullptr;  // none: sealed in the meantime
    } catch (const std::exception&) {
        return nullptr;
    }
}

int64_t CUDABufferMirror::size() const noexcept {
    return static_cast<int64_t>(state_->mirror.size());
}

Status CUDABufferMirror::flush() {
    std::lock_guard lock(state_->buffer->mutex);
    return state_->flush();
}

}  // namespace vineyard

#include "buffer.h"

namespace vineyard {
namespace detail {

void CreatedBuffers::add(ObjectID id, const std::shared_ptr<BufferState>& buffer) {
    std::lock_guard lock(mutex_);
    by_id_[id] = buffer;
}

void CreatedBuffers::remove(ObjectID id) {
    std::lock_guard lock(mutex_);
    by_id_.erase(id);
}

std::shared_ptr<BufferState> CreatedBuffers::find(ObjectID id) const {
    std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second.lock();
}

}  // namespace detail

Buffer::Buffer(std::shared_ptr<detail::BufferState> state) : state_(std::move(state)) {}
Buffer::~Buffer() = default;

const uint8_t* Buffer::data() const noexcept {
    return state_->data;
}
uint8_t* Buffer::mutable_data() noexcept {
    return is_mutable() ? state_->data : nullptr;
}
uintptr_t Buffer::address() const noexcept {
    return reinterpret_cast<uintptr_t>(state_->data);
}
int64_t Buffer::size() const noexcept {
    return state_->size;
}
int64_t Buffer::capacity() const noexcept {
    return state_->size;
}
bool Buffer::is_cpu() const noexcept {
    return state_->cpu;
}
bool Buffer::is_mutable() const noexcept {
    return state_->writable;
}
ObjectID Buffer::id() const noexcept {
    return state_->id;
}
std::string Buffer::device() const {
    return state_->device;
}

MutableBuffer::MutableBuffer(std::shared_ptr<detail::BufferState> state) : Buffer(std::move(state)) {}
MutableBuffer::~MutableBuffer() = default;

}  // namespace vineyard

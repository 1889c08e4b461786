#include "wraps.h"

#include "devices.h"

namespace gshm::usrbio {

Wraps& Wraps::instance() {
    static auto* wraps = new Wraps;  // never destroyed: threads may use it during exit
    return *wraps;
}

Result<std::unique_ptr<Iov>> Wraps::make(void* base, size_t size) {
    auto made = std::make_unique<Iov>();
    made->object = TRY(Object::wrap(base, size));
    made->size = size;
    if (!made->object.is_host()) made->gpu = gpu_number(made->object.device());
    return made;
}

void Wraps::put(std::unique_ptr<Iov> made) {
    (void)insert(std::move(made));
}

std::shared_ptr<Iov> Wraps::find(void* base, size_t size) {
    {
        const std::lock_guard lock(mutex_);
        if (auto found = places_.find({base, size}); found != places_.end()) {
            recent_.splice(recent_.begin(), recent_, found->second);
            return found->second->second;
        }
    }
    auto made = make(base, size);
    return made ? insert(*std::move(made)) : nullptr;
}

void Wraps::forget(void* base, size_t size) {
    std::shared_ptr<Iov> gone;  // ended without the lock
    const std::lock_guard lock(mutex_);
    const auto found = places_.find({base, size});
    if (found == places_.end()) return;
    gone = std::move(found->second->second);
    recent_.erase(found->second);
    places_.erase(found);
}

std::shared_ptr<Iov> Wraps::insert(std::unique_ptr<Iov> made) {
    const Key key = {made->object.data(), made->size};
    std::shared_ptr<Iov> shared = std::move(made);
    std::shared_ptr<Iov> gone;
    const std::lock_guard lock(mutex_);
    if (auto found = places_.find(key); found != places_.end()) {
        gone = std::exchange(found->second->second, shared);
        recent_.splice(recent_.begin(), recent_, found->second);
        return shared;
    }
    recent_.emplace_front(key, shared);
    places_[key] = recent_.begin();
    if (recent_.size() > kMost) {
        gone = std::move(recent_.back().second);
        places_.erase(recent_.back().first);
        recent_.pop_back();
    }
    return shared;
}

}  // namespace gshm::usrbio

// Right and wrong uses of the store lock; tests/tidy/store_lock compiles them.
#include "base/store_lock.h"

#include <functional>

namespace gshm::core {
namespace {

class Door {
public:
    int& store() REQUIRES(store_lock) { return store_; }
    const int& shared_store() REQUIRES_SHARED(store_lock) { return store_; }
    void wait() EXCLUDES(store_lock) {}
    StoreMutex& mutex() { return mutex_; }

private:
    StoreMutex mutex_;
    int store_ GUARDED_BY(store_lock) = 0;
};

// Lasts until the lock has been released, as fuse::FileSystem::Work.
class Work {
public:
    explicit Work(Door& door) REQUIRES(store_lock) : door_(door) { ++door_.store(); }
    ~Work() EXCLUDES(store_lock) {
        StoreLock lock(door_.mutex());
        --door_.store();
    }

private:
    Door& door_;
};

void wait_in_between(Door& door, StoreLock& lock) REQUIRES(store_lock) {
    lock.unlock();
    door.wait();
    lock.lock();
}

[[maybe_unused]] int use(Door& door) {
    {
        SharedStoreLock lock(door.mutex());
        if (door.shared_store() > 1) return 1;
    }
    std::function<void()> callback = [&] {
        store_lock.assert_held();
        ++door.store();
    };
    StoreLock lock(door.mutex());
    wait_in_between(door, lock);
    callback();
    {
        Work work(door);
        lock.unlock();
    }
    lock.lock();
    return door.store();
}

#if defined(WRONG_WITHOUT_THE_LOCK)
[[maybe_unused]] void misuse(Door& door) {
    ++door.store();
}
#elif defined(WRONG_CHANGE_UNDER_THE_SHARED_LOCK)
[[maybe_unused]] void misuse(Door& door) {
    SharedStoreLock lock(door.mutex());
    ++door.store();
}
#elif defined(WRONG_WAIT_UNDER_THE_LOCK)
[[maybe_unused]] void misuse(Door& door) {
    StoreLock lock(door.mutex());
    door.wait();
}
#elif defined(WRONG_AFTER_THE_LOCK)
[[maybe_unused]] void misuse(Door& door) {
    StoreLock lock(door.mutex());
    lock.unlock();
    ++door.store();
}
#elif defined(WRONG_TWICE)
[[maybe_unused]] void misuse(Door& door) {
    StoreLock lock(door.mutex());
    StoreLock again(door.mutex());
}
#elif defined(WRONG_CALLBACK_WITHOUT_ASSERTION)
[[maybe_unused]] std::function<void()> misuse(Door& door) {
    return [&] { ++door.store(); };
}
#elif defined(WRONG_DESTRUCTION_UNDER_THE_LOCK)
[[maybe_unused]] void misuse(Door& door) {
    StoreLock lock(door.mutex());
    Work work(door);
}
#elif defined(WRONG_CALLERS_LOCK_NOT_TAKEN_AGAIN)
[[maybe_unused]] void misuse(StoreLock& lock) REQUIRES(store_lock) {
    lock.unlock();
}
#endif

}  // namespace
}  // namespace gshm::core

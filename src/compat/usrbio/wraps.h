// Wrapped host memory. Programs of 3FS do not destroy it, so the caller's struct holds all that is needed: address and
// size. The state behind it is made again from these when it is needed, and a bounded number is kept.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "iov.h"

namespace gshm::usrbio {

// Safe from any thread.
class Wraps {
public:
    static constexpr size_t kMost = 256;

    static Wraps& instance();
    static Result<std::unique_ptr<Iov>> make(void* base, size_t size);

    // Replaces a former state of the same memory, which may have been unmapped in between.
    void put(std::unique_ptr<Iov> made);
    // Null: the memory is not mapped any more.
    std::shared_ptr<Iov> find(void* base, size_t size);
    void forget(void* base, size_t size);

private:
    using Key = std::pair<const void*, size_t>;
    using Entry = std::pair<Key, std::shared_ptr<Iov>>;

    std::shared_ptr<Iov> insert(std::unique_ptr<Iov> made);

    std::mutex mutex_;         // guards both
    std::list<Entry> recent_;  // the last one used is the first
    std::map<Key, std::list<Entry>::iterator> places_;
};

}  // namespace gshm::usrbio

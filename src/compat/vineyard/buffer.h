// The state behind a Buffer: an open object. And the buffers that a Client has made, so that sealing one reaches its
// handle.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vineyard.h>

#include <gshm/gshm.hpp>

namespace vineyard::detail {

// The buffers that a Client has made and that are still held, by id. Safe from any thread.
class CreatedBuffers {
public:
    void add(ObjectID id, const std::shared_ptr<BufferState>& buffer);
    void remove(ObjectID id);
    std::shared_ptr<BufferState> find(ObjectID id) const;  // null: none

private:
    mutable std::mutex mutex_;
    std::unordered_map<ObjectID, std::weak_ptr<BufferState>> by_id_;
};

struct BufferState {
    BufferState(ObjectID of, gshm::Object opened, bool for_writing, std::shared_ptr<CreatedBuffers> known_in)
        : id(of),
          data(opened.data_as<uint8_t>()),
          size(static_cast<int64_t>(opened.size())),
          cpu(opened.is_host()),
          device(opened.device()),
          writable(for_writing),
          created(std::move(known_in)),
          object(std::move(opened)) {}
    ~BufferState() {
        if (created) created->remove(id);
    }

    const ObjectID id;
    uint8_t* const data;
    const int64_t size;
    const bool cpu;
    const std::string device;
    std::atomic<bool> writable;
    const std::shared_ptr<CreatedBuffers> created;  // null: opened by its id

    std::mutex mutex;  // a handle is for one thread at a time, and Seal() comes from any
    gshm::Object object;
};

}  // namespace vineyard::detail

// An object that is being restored: made under another name, filled by several threads, and named when it is whole.
#pragma once

#include <atomic>
#include <mutex>
#include <memory>
#include <span>
#include <string>

#include "cli/snapshot/format.h"
#include "cli/snapshot/object_io.h"

namespace gshm::cli {

struct RestorePlace {
    std::string device;
    uint32_t flags = 0;   // GSHM_COMPRESSIBLE, if the device can; GSHM_DEDICATED
    bool owned = false;   // it gets the owner it had: root restores
    bool replace = false;
};

class RestoreObject {
public:
    RestoreObject(const SavedObject& saved, RestorePlace place);

    const SavedObject& saved() const { return saved_; }

    // Whether the name stands for an object with the same bytes. Throws a Failure if it stands for another, unless that
    // is to be replaced.
    bool is_there(ObjectReader& reader) const;

    // All of these throw a Failure. From any thread, each with its own client.
    void write(const Client& client, uint64_t offset, std::span<const std::byte> bytes);
    // When all is written: its name is this object from now on.
    void finish(const Client& client);
    // Leaves nothing of it.
    void drop(const Client& client);

    std::atomic<uint64_t> left;         // chunks
    std::atomic<bool> failed = false;
    bool there = false;                 // already, with the same bytes

private:
    void make(const Client& client);
    Result<Object> try_create(const Client& client);
    void set_attributes(const Client& client) const;
    void remove_stale(const Client& client) const;
    void change(const Client& client, const std::string& name, uint32_t what) const;
    bool has_many_writers() const { return saved_.chunks.size() > 1; }

    const SavedObject& saved_;
    RestorePlace place_;
    std::string temporary_;  // name
    bool elsewhere_;         // that is in another directory than its own
    size_t at_once_ = 0;     // attributes that it is made with; the others are set one by one
    uint32_t first_mode_;    // until it is finished
    std::mutex mutex_;       // while it is made
    Object object_;          // not kept before it is finished: if this process ends, so does it
    std::unique_ptr<const HostMemory> memory_;
};

}  // namespace gshm::cli

// An object that is being restored: created under a temporary name, filled by several threads, and renamed when
// complete.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "cli/snapshot/format.h"
#include "cli/snapshot/object_io.h"

namespace gshm::cli {

struct RestorePlace {
    std::string device;
    uint32_t flags = 0;  // GSHM_COMPRESSIBLE if the device supports it; GSHM_DEDICATED
    bool owned = false;  // restore the saved owner (only root)
    bool replace = false;
};

class RestoreObject {
public:
    RestoreObject(const SavedObject& saved, RestorePlace place);

    const SavedObject& saved() const { return saved_; }

    // Whether the name already refers to an object with the same bytes. Throws a Failure if it refers to another one,
    // unless that is to be replaced.
    bool is_there(ObjectReader& reader) const;

    // All of these throw a Failure. From any thread, each with its own client.
    void write(const Client& client, uint64_t offset, std::span<const std::byte> bytes);
    // Called when all bytes are written. Gives the object its final name.
    void finish(const Client& client);
    // Removes the incomplete object.
    void drop(const Client& client);

    std::atomic<uint64_t> left;  // chunks left to write
    std::atomic<bool> failed = false;
    bool there = false;  // exists already, with the same bytes

private:
    void make(const Client& client);
    Result<Object> try_create(const Client& client);
    void set_attributes(const Client& client) const;
    void remove_stale(const Client& client) const;
    void change(const Client& client, const std::string& name, uint32_t what) const;
    void set_acl(const Client& client, const std::string& name) const;
    bool has_many_writers() const { return saved_.chunks.size() > 1; }

    const SavedObject& saved_;
    RestorePlace place_;
    std::string temporary_;  // name
    bool elsewhere_;         // the temporary name is in another directory
    size_t at_once_ = 0;     // number of attributes set at creation; the others are set one by one
    uint32_t first_mode_;    // the mode until finish()
    std::mutex mutex_;       // held during creation
    Object object_;          // not kept before finish(): an incomplete object ends with this process
    std::unique_ptr<const HostMemory> memory_;
};

}  // namespace gshm::cli

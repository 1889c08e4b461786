// The state shared by a client and its objects: the connection and the mapped extents.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mapping.h"
#include "client/connection.h"
#include "client/local_devices.h"

struct gshm_object;

namespace gshm::core::client {

class Ring;

// An extent that is mapped once for all its objects.
struct MappedExtent {
    std::unique_ptr<Extent> extent;
    Device* device = nullptr;  // of this process
    size_t users = 0;
};

// An extent of a session, with the access that it is mapped for.
struct ExtentKey {
    uint64_t epoch = 0;
    uint64_t extent = 0;
    Access access = Access::read;
    auto operator<=>(const ExtentKey&) const = default;
};

class Core {
public:
    static Result<std::shared_ptr<Core>> create(const std::string& dir, int timeout_ms);
    ~Core();

    DaemonConnection& connection() { return *connection_; }
    Status check_fork() const { return check_fork_count(generation_); }

    // Maps the extent of an opened object, or finds its mapping. `descriptor` came with the answer, if any.
    Result<MappedExtent*> map(const ExtentKey& key, const wire::OpenRecord& record, const RemoteDevice& remote,
                              UniqueFd descriptor) EXCLUDES(extents_mutex_);
    // True: this was the last user, and the extent is unmapped.
    bool unmap(const ExtentKey& key) EXCLUDES(extents_mutex_);

    // ---- the open objects, for the reconcile with a restarted gshmd ----
    void add(gshm_object* object) EXCLUDES(objects_mutex_);
    // Returns how many times the leases had been counted. If they are counted again before the release is sent, gshmd
    // has already released this one.
    uint64_t remove(gshm_object* object) EXCLUDES(objects_mutex_);

    // ---- idle rings; see Ring::put_aside() ----
    // Null: there is no idle ring of that size.
    std::unique_ptr<Ring> take_ring(uint32_t entries) EXCLUDES(rings_mutex_);
    // False: enough rings are kept.
    bool keep_ring(std::unique_ptr<Ring>& ring) EXCLUDES(rings_mutex_);

    // Copies through the daemon, piece by piece.
    Status copy_in(uint64_t id, uint64_t epoch, uint64_t offset, std::span<const std::byte> source)
        EXCLUDES(staging_mutex_);
    Status copy_out(uint64_t id, uint64_t epoch, uint64_t offset, std::span<std::byte> destination)
        EXCLUDES(staging_mutex_);

private:
    struct Staging {
        uint64_t connection = 0;  // the number of the connection that it is attached to
        UniqueFd file;
        Mapping mapping;
    };

    static constexpr size_t kIdleRings = 8;  // one for each thread that transfers files

    explicit Core(std::unique_ptr<DaemonConnection> connection);
    void count_held(uint64_t epoch, HeldObjects& held) EXCLUDES(objects_mutex_);
    Status make_staging() REQUIRES(staging_mutex_);
    Status ensure_staging(uint64_t epoch) REQUIRES(staging_mutex_);
    Status copy_piece(uint64_t id, uint64_t epoch, uint64_t offset, uint64_t bytes, bool into_object)
        REQUIRES(staging_mutex_);

    std::unique_ptr<DaemonConnection> connection_;
    const uint64_t generation_;

    // Held during an import, so that two threads do not import the same extent. Never held together with
    // staging_mutex_. The lock of the connection is taken inside both.
    Mutex extents_mutex_;
    std::map<ExtentKey, MappedExtent> extents_ GUARDED_BY(extents_mutex_);

    Mutex objects_mutex_;  // innermost; no calls are made under it
    gshm_object* objects_ GUARDED_BY(objects_mutex_) = nullptr;
    uint64_t counted_ GUARDED_BY(objects_mutex_) = 0;

    Mutex rings_mutex_;  // no calls are made under it
    std::vector<std::unique_ptr<Ring>> idle_rings_ GUARDED_BY(rings_mutex_);

    Mutex staging_mutex_;
    Staging staging_ GUARDED_BY(staging_mutex_);
};

}  // namespace gshm::core::client

// What a client and its objects share: the connection and the extents that are mapped here.
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

// Mapped once, used by every object in it.
struct MappedExtent {
    std::unique_ptr<Extent> extent;
    Device* device = nullptr;  // here
    size_t users = 0;
};

// Which extent of which session, in which access.
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

    // Maps the extent of an opened object, or finds it mapped. `descriptor` is what came with the answer, if any.
    Result<MappedExtent*> map(const ExtentKey& key, const wire::OpenRecord& record, const RemoteDevice& remote,
                              UniqueFd descriptor) EXCLUDES(extents_mutex_);
    // True if that was the last user, and the extent is no longer mapped.
    bool unmap(const ExtentKey& key) EXCLUDES(extents_mutex_);

    // ---- the objects that are open, so that gshmd can be told should it be started anew ----
    void add(gshm_object* object) EXCLUDES(objects_mutex_);
    // Returns how many times they had been counted: if it is once more when the lease is to be released, it is already.
    uint64_t remove(gshm_object* object) EXCLUDES(objects_mutex_);

    // ---- rings that nobody uses for now; see Ring::put_aside() ----
    // Null: there is none of that size.
    std::unique_ptr<Ring> take_ring(uint32_t entries) EXCLUDES(rings_mutex_);
    // False: there are enough.
    bool keep_ring(std::unique_ptr<Ring>& ring) EXCLUDES(rings_mutex_);

    // Through the daemon, piece by piece.
    Status copy_in(uint64_t id, uint64_t epoch, uint64_t offset, std::span<const std::byte> source)
        EXCLUDES(staging_mutex_);
    Status copy_out(uint64_t id, uint64_t epoch, uint64_t offset, std::span<std::byte> destination)
        EXCLUDES(staging_mutex_);

private:
    struct Staging {
        uint64_t connection = 0;  // that knows of it
        UniqueFd file;
        Mapping mapping;
    };

    static constexpr size_t kIdleRings = 8;  // a thread that moves files needs one

    explicit Core(std::unique_ptr<DaemonConnection> connection);
    void count_held(uint64_t epoch, HeldObjects& held) EXCLUDES(objects_mutex_);
    Status make_staging() REQUIRES(staging_mutex_);
    Status ensure_staging(uint64_t epoch) REQUIRES(staging_mutex_);
    Status copy_piece(uint64_t id, uint64_t epoch, uint64_t offset, uint64_t bytes, bool into_object)
        REQUIRES(staging_mutex_);

    std::unique_ptr<DaemonConnection> connection_;
    const uint64_t generation_;

    // Held while an extent is imported, so that two threads do not import one extent twice. Never together with
    // staging_mutex_; the connection's own lock is taken inside both.
    Mutex extents_mutex_;
    std::map<ExtentKey, MappedExtent> extents_ GUARDED_BY(extents_mutex_);

    Mutex objects_mutex_;  // inside of all others; nothing is called with it
    gshm_object* objects_ GUARDED_BY(objects_mutex_) = nullptr;
    uint64_t counted_ GUARDED_BY(objects_mutex_) = 0;

    Mutex rings_mutex_;  // nothing is called with it
    std::vector<std::unique_ptr<Ring>> idle_rings_ GUARDED_BY(rings_mutex_);

    Mutex staging_mutex_;
    Staging staging_ GUARDED_BY(staging_mutex_);
};

}  // namespace gshm::core::client

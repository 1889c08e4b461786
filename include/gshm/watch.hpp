// Watches for C++20: events for changes of names; conventions as in gshm.hpp, contracts in gshm.h.
//
//   auto watch = gshm::Watch::create(client, "models/", {.existing = true}).value();
//   for (;;) {
//       gshm::Event event = watch.next().value();
//       if (event.kind == gshm::EventKind::kOverflow) look_again();
//       else if (gshm::is_sealed(event)) load(event.name);
//   }
#ifndef GSHM_WATCH_HPP
#define GSHM_WATCH_HPP

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

enum class EventKind : uint32_t {
    kCreated = GSHM_EVENT_CREATED,
    kSealed = GSHM_EVENT_SEALED,
    kDeleted = GSHM_EVENT_DELETED,
    kRenamed = GSHM_EVENT_RENAMED,
    kReplaced = GSHM_EVENT_REPLACED,
    kExisting = GSHM_EVENT_EXISTING,
    kReady = GSHM_EVENT_READY,
    kOverflow = GSHM_EVENT_OVERFLOW,
    kExpired = GSHM_EVENT_EXPIRED,
};

struct Event {
    EventKind kind{};
    uint32_t node_kind = 0;  // GSHM_KIND_...
    uint32_t state = 0;      // GSHM_STATE_...
    uint64_t id = 0;
    uint64_t replaced_id = 0;
    uint64_t size_bytes = 0;
    int64_t time_ns = 0;
    std::string device;
    std::string name;
    std::string old_name;
};

inline bool is_sealed(const Event& event) noexcept {
    return event.state == GSHM_STATE_SEALED && event.kind != EventKind::kDeleted && event.kind != EventKind::kExpired;
}

struct WatchOptions {
    bool existing = false;  // GSHM_WATCH_EXISTING
};

// For one thread at a time; may outlive the Client.
class Watch {
public:
    Watch() = default;
    static Result<Watch> create(const Client& client, const std::string& prefix = {},
                                const WatchOptions& options = {}) {
        gshm_watch* handle = nullptr;
        const uint32_t flags = options.existing ? uint32_t{GSHM_WATCH_EXISTING} : 0;
        auto made =
            detail::call({prefix}, [&] { return gshm_watch_create(client.get(), prefix.c_str(), flags, &handle); });
        if (!made) return std::move(made).error();
        return Watch(handle);
    }
    static Watch adopt(gshm_watch* handle) noexcept { return Watch(handle); }  // takes ownership
    [[nodiscard]] gshm_watch* take() noexcept { return handle_.release(); }    // gives up ownership
    gshm_watch* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    // ETIMEDOUT after the timeout; without one, no limit.
    Result<Event> next(std::optional<std::chrono::milliseconds> timeout = {}) {
        auto c = detail::sized<gshm_event>();
        const int ms = timeout ? detail::clamp_ms(*timeout) : -1;
        auto done = detail::call({}, [&] { return gshm_watch_next(get(), &c, ms); });
        if (!done) return std::move(done).error();
        return Event{static_cast<EventKind>(c.event),
                     c.kind,
                     c.state,
                     c.id,
                     c.replaced_id,
                     c.size_bytes,
                     c.time_ns,
                     c.device,
                     c.name,
                     c.old_name};
    }
    // For poll() and epoll: readable when next() returns without waiting.
    int fd() const noexcept { return gshm_watch_fd(get()); }

private:
    struct Destroy {
        void operator()(gshm_watch* watch) const noexcept { gshm_watch_destroy(watch); }
    };
    explicit Watch(gshm_watch* handle) noexcept : handle_(handle) {}

    std::unique_ptr<gshm_watch, Destroy> handle_;
};

}  // namespace v0
}  // namespace gshm

#endif

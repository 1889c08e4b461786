// Rings for C++20: many transfers between files and objects at once; conventions as in gshm.hpp, contracts in gshm.h.
//
//   auto ring = gshm::Ring::create(&client, 64).value();
//   uint32_t file = ring.add_file(fd).value();
//   ring.prepare_read(file, 0, {{&weights, 0, weights.size()}}, 1).value();
//   ring.submit().value();
//   for (auto& done : ring.wait(1).value()) use(done.user_data, done.result);
#ifndef GSHM_RING_HPP
#define GSHM_RING_HPP

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

using Completion = gshm_completion;

struct Range {
    const Object* object;
    uint64_t offset_bytes;
    uint64_t size_bytes;
};

struct RingOptions {
    uint32_t entries = 128;  // maximum number of ranges in flight
    bool shared = false;     // GSHM_RING_SHARED
};

// For one thread at a time, unless it is shared.
class Ring {
public:
    Ring() = default;
    static Result<Ring> create(const Client* client, uint32_t entries = 128) {
        return create(client, RingOptions{.entries = entries});
    }
    // client null: only for memory without a daemon.
    static Result<Ring> create(const Client* client, const RingOptions& wanted) {
        gshm_ring_options options = GSHM_RING_OPTIONS_INIT;
        options.entries = wanted.entries;
        if (wanted.shared) options.flags = GSHM_RING_SHARED;
        gshm_ring* handle = nullptr;
        auto made =
            detail::call({}, [&] { return gshm_ring_create(client ? client->get() : nullptr, &options, &handle); });
        if (!made) return std::move(made).error();
        return Ring(handle);
    }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    gshm_ring* get() const noexcept { return handle_.get(); }
    size_t entries() const noexcept { return gshm_ring_entries(get()); }

    Result<uint32_t> add_file(int fd) {
        uint32_t file = 0;
        if (auto added = detail::call({}, [&] { return gshm_ring_add_file(get(), fd, &file); }); !added)
            return std::move(added).error();
        return file;
    }
    Result<void> remove_file(uint32_t file) {
        return detail::call({}, [&] { return gshm_ring_remove_file(get(), file); });
    }

    // From the file into consecutive ranges; and from the ranges into the file.
    Result<void> prepare_read(uint32_t file, uint64_t file_offset, std::span<const Range> ranges, uint64_t user_data) {
        return prepare(GSHM_IO_READ, file, file_offset, ranges, user_data);
    }
    Result<void> prepare_write(uint32_t file, uint64_t file_offset, std::span<const Range> ranges, uint64_t user_data) {
        return prepare(GSHM_IO_WRITE, file, file_offset, ranges, user_data);
    }
    Result<void> prepare_read(uint32_t file, uint64_t file_offset, Range range, uint64_t user_data) {
        return prepare(GSHM_IO_READ, file, file_offset, {&range, 1}, user_data);
    }
    Result<void> prepare_write(uint32_t file, uint64_t file_offset, Range range, uint64_t user_data) {
        return prepare(GSHM_IO_WRITE, file, file_offset, {&range, 1}, user_data);
    }
    // Returns the number of operations started.
    Result<int> submit() {
        return count([&] { return gshm_ring_submit(get()); });
    }
    // Waits for at least `least` completions, or until the timeout; without one, no limit.
    Result<std::vector<Completion>> wait(size_t least = 1,
                                         std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
        std::vector<Completion> taken(std::max(least, entries()));
        const int timeout_ms = timeout ? static_cast<int>(std::clamp<int64_t>(timeout->count(), 0, INT_MAX)) : -1;
        auto many = count([&] { return gshm_ring_wait(get(), taken.data(), taken.size(), least, timeout_ms); });
        if (!many) return std::move(many).error();
        taken.resize(static_cast<size_t>(*many));
        return taken;
    }
    // From any thread: the current wait(), or the next one that would block, returns at once with the completions
    // available.
    void wake() { gshm_ring_wake(get()); }

private:
    struct Destroy {
        void operator()(gshm_ring* ring) const noexcept { gshm_ring_destroy(ring); }
    };
    explicit Ring(gshm_ring* handle) noexcept : handle_(handle) {}

    Result<void> prepare(uint32_t operation, uint32_t file, uint64_t file_offset, std::span<const Range> ranges,
                         uint64_t user_data) {
        std::vector<gshm_range> list;
        for (const auto& range : ranges) {
            list.push_back({range.object ? range.object->get() : nullptr, range.offset_bytes, range.size_bytes});
        }
        const gshm_io io = {sizeof io, operation, file, 0, file_offset, list.data(), list.size(), user_data};
        return detail::call({}, [&] { return gshm_ring_prepare(get(), &io); });
    }
    template <class Call>
    Result<int> count(Call body) {
        int value = 0;
        auto done = detail::call({}, [&] {
            value = body();
            return std::min(value, 0);
        });
        if (!done) return std::move(done).error();
        return value;
    }

    std::unique_ptr<gshm_ring, Destroy> handle_;
};

}  // namespace v0
}  // namespace gshm

#endif

// Mirrors for C++20: an object's bytes in CPU memory; conventions as in gshm.hpp, contracts in gshm.h.
//
//   auto mirror = gshm::Mirror::create(weights, {.write = true}).value();   // loads the bytes
//   mirror.writable_as<float>().value()[0] = 1;                              // marks them as changed
//   mirror.flush().value();                                                  // writes back; the destructor cannot
//   report errors
//
// On host the mirror is the object's memory itself, and nothing is copied.
#ifndef GSHM_MIRROR_HPP
#define GSHM_MIRROR_HPP

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

struct MirrorOptions {
    uint64_t offset_bytes = 0;  // in the object
    uint64_t size_bytes = 0;    // 0: to the end
    bool load = true;           // GSHM_MIRROR_LOAD; false: the contents are undefined
    bool write = false;         // GSHM_MIRROR_WRITE: EPERM for a sealed object, EACCES for one open for reading
    void* stream = nullptr;     // a CUstream or cudaStream_t that orders the copies; must outlive the mirror

    uint32_t flags() const noexcept {
        return (load ? uint32_t{GSHM_MIRROR_LOAD} : 0) | (write ? uint32_t{GSHM_MIRROR_WRITE} : 0);
    }
};

// For one thread at a time, together with its object. May outlive the handle of its object and the Client.
class Mirror {
public:
    Mirror() = default;
    static Result<Mirror> create(const Object& object, const MirrorOptions& options = {}) {
        const gshm_mirror_options c = {sizeof c, options.flags(), options.offset_bytes, options.size_bytes,
                                       options.stream};
        gshm_mirror* handle = nullptr;
        auto made = detail::call({}, [&] { return gshm_mirror_create(object.get(), &c, &handle); });
        if (!made) return std::move(made).error();
        return Mirror(handle);
    }
    static Mirror adopt(gshm_mirror* handle) noexcept { return Mirror(handle); }  // takes ownership
    [[nodiscard]] gshm_mirror* take() noexcept { return handle_.release(); }      // gives up ownership
    gshm_mirror* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    const std::byte* data() const noexcept { return static_cast<const std::byte*>(gshm_mirror_data(get())); }
    uint64_t size() const noexcept { return gshm_mirror_size(get()); }  // bytes
    std::span<const std::byte> bytes() const noexcept { return {data(), static_cast<size_t>(size())}; }
    // As whole Ts.
    template <class T>
    std::span<const T> as() const noexcept {
        static_assert(std::is_trivially_copyable_v<T>);
        return {reinterpret_cast<const T*>(data()), static_cast<size_t>(size() / sizeof(T))};
    }

    // Writable bytes, marked as changed: the next flush, or the destructor, writes them back. EACCES: the mirror is not
    // writable. After a flush call it again, or mark().
    Result<std::span<std::byte>> writable() { return writable(0, size()); }
    Result<std::span<std::byte>> writable(uint64_t offset_bytes, uint64_t size_bytes) {
        if (auto marked = mark(offset_bytes, size_bytes); !marked) return std::move(marked).error();
        return std::span(static_cast<std::byte*>(gshm_mirror_data(get())) + offset_bytes,
                         static_cast<size_t>(size_bytes));
    }
    template <class T>
    Result<std::span<T>> writable_as() {
        static_assert(std::is_trivially_copyable_v<T>);
        auto all = writable();
        if (!all) return std::move(all).error();
        return std::span<T>(reinterpret_cast<T*>(all->data()), all->size() / sizeof(T));
    }
    Result<void> mark(uint64_t offset_bytes, uint64_t size_bytes) {
        return detail::call({}, [&] { return gshm_mirror_mark(get(), offset_bytes, size_bytes); });
    }
    void unmark() noexcept { gshm_mirror_unmark(get()); }  // discards the marks: changes are not written back

    Result<void> flush() {  // the marked ranges
        return detail::call({}, [&] { return gshm_mirror_flush(get()); });
    }
    Result<void> flush(uint64_t offset_bytes, uint64_t size_bytes) {  // this range, marked or not
        return detail::call({}, [&] { return gshm_mirror_flush_range(get(), offset_bytes, size_bytes); });
    }
    Result<void> load() { return load(0, size()); }  // again, from the object
    Result<void> load(uint64_t offset_bytes, uint64_t size_bytes) {
        return detail::call({}, [&] { return gshm_mirror_load(get(), offset_bytes, size_bytes); });
    }
    // Does what the destructor does, and returns errors; the destructor can only log them.
    Result<void> close() {
        return detail::call({}, [&] { return gshm_mirror_destroy(take()); });
    }

private:
    struct Destroy {
        void operator()(gshm_mirror* mirror) const noexcept { gshm_mirror_destroy(mirror); }
    };
    explicit Mirror(gshm_mirror* handle) noexcept : handle_(handle) {}

    std::unique_ptr<gshm_mirror, Destroy> handle_;
};

// Limits the pinned memory that is cached after mirrors are destroyed.
inline void keep_pinned(uint64_t most_bytes) noexcept {
    gshm_keep_pinned(most_bytes);
}

}  // namespace v0
}  // namespace gshm

#endif

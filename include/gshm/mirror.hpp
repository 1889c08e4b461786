// Mirrors for C++20: an object's bytes for the CPU, wherever they are; conventions as in gshm.hpp, meaning as in gshm.h.
//
//   auto mirror = gshm::Mirror::create(weights, {.write = true}).value();   // the bytes are here
//   mirror.writable_as<float>().value()[0] = 1;                              // and marked as changed
//   mirror.flush().value();                                                  // and back: in a destructor nobody hears why not
//
// On host it is the object's memory itself, and nothing is copied.
#ifndef GSHM_MIRROR_HPP
#define GSHM_MIRROR_HPP

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

struct MirrorOptions {
    uint64_t offset_bytes = 0;  // of the object
    uint64_t size_bytes = 0;    // 0: to its end
    bool load = true;           // GSHM_MIRROR_LOAD; false: it begins with whatever bytes
    bool write = false;         // GSHM_MIRROR_WRITE: EPERM for a sealed object, EACCES for one open for reading
    void* stream = nullptr;     // a CUstream or cudaStream_t that the copies are ordered by; it outlives the mirror

    uint32_t flags() const noexcept {
        return (load ? uint32_t{GSHM_MIRROR_LOAD} : 0) | (write ? uint32_t{GSHM_MIRROR_WRITE} : 0);
    }
};

// For one thread at a time, together with its object; which may be closed before, or go with its Client.
class Mirror {
public:
    Mirror() = default;
    static Result<Mirror> create(const Object& object, const MirrorOptions& options = {}) {
        const gshm_mirror_options c = {sizeof c, options.flags(), options.offset_bytes, options.size_bytes, options.stream};
        gshm_mirror* handle = nullptr;
        auto made = detail::call({}, [&] { return gshm_mirror_create(object.get(), &c, &handle); });
        if (!made) return std::move(made).error();
        return Mirror(handle);
    }
    static Mirror adopt(gshm_mirror* handle) noexcept { return Mirror(handle); }  // destroyed by us from now on
    [[nodiscard]] gshm_mirror* take() noexcept { return handle_.release(); }      // to be destroyed by the caller
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

    // To be changed: marked, so that the next flush (or the destructor) writes back all of it. EACCES if it was not made
    // for that. After a flush it is to be asked for again, or marked.
    Result<std::span<std::byte>> writable() { return writable(0, size()); }
    Result<std::span<std::byte>> writable(uint64_t offset_bytes, uint64_t size_bytes) {
        if (auto marked = mark(offset_bytes, size_bytes); !marked) return std::move(marked).error();
        return std::span(static_cast<std::byte*>(gshm_mirror_data(get())) + offset_bytes, static_cast<size_t>(size_bytes));
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
    void unmark() noexcept { gshm_mirror_unmark(get()); }  // what was changed is not written back

    Result<void> flush() {  // what is marked
        return detail::call({}, [&] { return gshm_mirror_flush(get()); });
    }
    Result<void> flush(uint64_t offset_bytes, uint64_t size_bytes) {  // this, marked or not
        return detail::call({}, [&] { return gshm_mirror_flush_range(get(), offset_bytes, size_bytes); });
    }
    Result<void> load() { return load(0, size()); }  // anew, from the object
    Result<void> load(uint64_t offset_bytes, uint64_t size_bytes) {
        return detail::call({}, [&] { return gshm_mirror_load(get(), offset_bytes, size_bytes); });
    }
    // What the destructor does, which can only log what goes wrong.
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

// Pinned memory that no mirror uses any more is kept for the next ones: at most so much of it.
inline void keep_pinned(uint64_t most_bytes) noexcept {
    gshm_keep_pinned(most_bytes);
}

}  // namespace v0
}  // namespace gshm

#endif

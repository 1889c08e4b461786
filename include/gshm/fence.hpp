// Fences for C++20: order a reader's kernels after a writer's; conventions as in gshm.hpp, contracts in gshm.h.
//
//   auto fence = gshm::Fence::open(weights, {.write = true}).value();   // the writer
//   fill<<<blocks, threads, 0, stream>>>(weights.data());
//   fence.publish(stream).value();                                      // returns at once
//
//   auto fence = gshm::Fence::open(weights).value();                    // a reader, in another process
//   fence.wait(stream).value();                                         // its stream waits, on the GPU
//   use<<<blocks, threads, 0, stream>>>(weights.data());
#ifndef GSHM_FENCE_HPP
#define GSHM_FENCE_HPP

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

struct FenceOptions {
    bool write = false;  // GSHM_WRITE: to publish; EBUSY while another process does
};

// For one thread at a time; may outlive the handle of its object.
class Fence {
public:
    Fence() = default;
    static Result<Fence> open(const Object& object, FenceOptions options = {}) {
        gshm_fence* handle = nullptr;
        auto opened = detail::call(
            {}, [&] { return gshm_fence_open(object.get(), options.write ? uint32_t{GSHM_WRITE} : 0u, &handle); });
        if (!opened) return std::move(opened).error();
        return Fence(handle);
    }
    static Fence adopt(gshm_fence* handle) noexcept { return Fence(handle); }  // takes ownership
    [[nodiscard]] gshm_fence* take() noexcept { return handle_.release(); }    // gives up ownership
    gshm_fence* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    // Returns the generation, which is complete when all work queued on the stream so far is.
    Result<uint64_t> publish(void* stream = nullptr) {
        uint64_t generation = 0;
        auto published = detail::call({}, [&] { return gshm_fence_publish(get(), stream, &generation); });
        if (!published) return std::move(published).error();
        return generation;
    }
    // Later work on the stream begins when the generation (0: the newest) is complete; returns its number. An
    // unpublished generation is waited for on the CPU.
    Result<uint64_t> wait(void* stream = nullptr, uint64_t generation = 0,
                          std::optional<std::chrono::milliseconds> timeout = {}) {
        uint64_t which = 0;
        const int ms = timeout ? detail::clamp_ms(*timeout) : -1;
        auto waited = detail::call({}, [&] { return gshm_fence_wait(get(), stream, generation, ms, &which); });
        if (!waited) return std::move(waited).error();
        return which;
    }
    // EAGAIN: not complete yet. EOWNERDEAD: it never will be.
    Result<void> check(uint64_t generation) const {
        return detail::call({}, [&] { return gshm_fence_check(get(), generation); });
    }
    uint64_t published() const noexcept { return gshm_fence_published(get()); }  // the newest; 0: none
    void close() noexcept { handle_.reset(); }                                   // closes it now

private:
    struct Close {
        void operator()(gshm_fence* fence) const noexcept { gshm_fence_close(fence); }
    };
    explicit Fence(gshm_fence* handle) noexcept : handle_(handle) {}

    std::unique_ptr<gshm_fence, Close> handle_;
};

}  // namespace v0
}  // namespace gshm

#endif

// Pools on host and on fake GPUs, with a real daemon.
#pragma once

#include "cuda/api.h"
#include "fake_driver.h"
#include "survival_fixture.h"
#include <gshm/pool.hpp>

namespace gshm::core::test::pools {

namespace hpp = ::gshm::v0;
using Memory = hpp::Pool;
using Bytes = std::vector<std::byte>;
inline constexpr uint64_t kMiB = 1 << 20;

inline Bytes pattern_of(size_t bytes, unsigned seed) {
    Bytes data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
    return data;
}
// Accesses memory through its pointer, on any device.
inline hpp::Object wrapped(void* memory, size_t bytes) {
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_wrap(memory, bytes, &object), 0) << gshm_last_error();
    return hpp::Object::adopt(object);
}
inline void write_to(void* memory, size_t bytes, unsigned seed) {
    EXPECT_TRUE(wrapped(memory, bytes).copy_in(pattern_of(bytes, seed)));
}
inline bool holds_in(void* memory, size_t bytes, unsigned seed) {
    Bytes data(bytes);
    return wrapped(memory, bytes).copy_out(data) && data == pattern_of(bytes, seed);
}

class PoolFixture : public LibrarySurvivalTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(start_all());
        hpp_ = hpp::Client::connect({.dir = dir(), .timeout = std::chrono::milliseconds(kPatience)}).value();
    }
    ~PoolFixture() override { remove_faults(); }

    const char* where() const { return GetParam(); }
    bool on_host() const { return std::string_view(where()) == "host"; }
    Memory make(hpp::PoolOptions options = {}) {
        options.device = where();
        if (options.slab_bytes == 0) options.slab_bytes = 4 * kMiB;
        return Memory::create(hpp_, options).value();
    }
    gshm_device_info info() { return device(client_.get(), where()); }
    static int code(const hpp::Result<void*>& result) { return result ? 0 : result.error().code; }
    static int code(const hpp::Result<void>& result) { return result ? 0 : result.error().code; }

    hpp::Client hpp_;
};

}  // namespace gshm::core::test::pools

// The test double of the driver: asynchronous streams and their events.
#include <string>
#include <thread>
#include <vector>

#include "harness.h"

namespace fakecuda_test {
namespace {

TEST(FakeCudaStream, CopiesEndInOrder) {
    if (!in_child()) return;
    start();
    CUdeviceptr pointer = map_new(create());
    CUstream stream = nullptr;
    ASSERT_EQ(cuda().stream_create(&stream, kStreamNonBlocking), kSuccess);
    std::vector<CUevent> events(16);
    std::string one(4096, '1');
    std::string back(4096, '0');
    EXPECT_EQ(cuda().mem_host_register(one.data(), one.size(), 0), kSuccess);
    EXPECT_EQ(cuda().mem_host_register(back.data(), back.size(), 0), kSuccess);
    for (CUevent& event : events) {
        ASSERT_EQ(cuda().event_create(&event, kEventBlockingSync | kEventDisableTiming), kSuccess);
        EXPECT_EQ(cuda().event_query(event), kSuccess) << "nothing was recorded";
        EXPECT_EQ(cuda().memcpy_htod_async(pointer, one.data(), one.size(), stream), kSuccess);
        EXPECT_EQ(cuda().memcpy_dtoh_async(back.data(), pointer, back.size(), stream), kSuccess);
        EXPECT_EQ(cuda().event_record(event, stream), kSuccess);
    }
    EXPECT_EQ(cuda().event_synchronize(events.back()), kSuccess);
    for (CUevent event : events) EXPECT_EQ(cuda().event_query(event), kSuccess);
    EXPECT_EQ(back, one);
    for (CUevent event : events) EXPECT_EQ(cuda().event_destroy(event), kSuccess);
    EXPECT_EQ(cuda().stream_destroy(stream), kSuccess);
    EXPECT_EQ(cuda().mem_host_unregister(one.data()), kSuccess);
    EXPECT_EQ(cuda().mem_host_unregister(back.data()), kSuccess);
}

TEST(FakeCudaStream, AnEventIsNotReadyBeforeItsCopy) {
    if (!in_child({"FAKECUDA_COPY_DELAY_US=100000"})) return;
    start();
    CUdeviceptr pointer = map_new(create());
    CUstream stream = nullptr;
    CUevent event = nullptr;
    ASSERT_EQ(cuda().stream_create(&stream, kStreamNonBlocking), kSuccess);
    ASSERT_EQ(cuda().event_create(&event, kEventDisableTiming), kSuccess);
    std::string back = "still mine";
    EXPECT_EQ(write(pointer, "the GPU's."), kSuccess) << "on the default stream: done at once";
    EXPECT_EQ(cuda().memcpy_dtoh_async(back.data(), pointer, back.size(), stream), kSuccess);
    EXPECT_EQ(cuda().event_record(event, stream), kSuccess);
    EXPECT_EQ(cuda().event_query(event), kErrorNotReady);
    EXPECT_EQ(back, "still mine");
    EXPECT_EQ(cuda().event_synchronize(event), kSuccess);
    EXPECT_EQ(back, "the GPU's.");
}

// The legacy stream waits for streams that are not created as non-blocking.
TEST(FakeCudaStream, LegacyStreamWaitsForBlockingOnes) {
    if (!in_child({"FAKECUDA_COPY_DELAY_US=50000"})) return;
    start();
    CUdeviceptr pointer = map_new(create());
    EXPECT_EQ(write(pointer, "old"), kSuccess);
    CUstream blocking = nullptr;
    CUstream other = nullptr;
    ASSERT_EQ(cuda().stream_create(&blocking, 0), kSuccess);
    ASSERT_EQ(cuda().stream_create(&other, kStreamNonBlocking), kSuccess);
    EXPECT_EQ(cuda().memcpy_htod_async(pointer, "one", 3, other), kSuccess);
    EXPECT_EQ(read(pointer, 3), "old");
    EXPECT_EQ(cuda().stream_synchronize(other), kSuccess);
    EXPECT_EQ(read(pointer, 3), "one");
    EXPECT_EQ(cuda().memcpy_htod_async(pointer, "two", 3, blocking), kSuccess);
    EXPECT_EQ(read(pointer, 3), "two");
}

// A stream that waits for an event continues after the event's work, and other streams are not affected.
TEST(FakeCudaStream, AStreamWaitsForAnEvent) {
    if (!in_child_of_fake()) return;
    start();
    CUdeviceptr pointer = map_new(create());
    CUstream first = nullptr;
    CUstream second = nullptr;
    CUstream third = nullptr;
    for (CUstream* stream : {&first, &second, &third}) {
        ASSERT_EQ(cuda().stream_create(stream, kStreamNonBlocking), kSuccess);
    }
    CUevent event = nullptr;
    ASSERT_EQ(cuda().event_create(&event, kEventDisableTiming), kSuccess);
    EXPECT_EQ(cuda().stream_wait_event(second, event, 0), kSuccess) << "never recorded: nothing to wait for";
    ASSERT_EQ(cuda().hold(first, 1), 0);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 'a', 4, first), kSuccess);
    EXPECT_EQ(cuda().event_record(event, first), kSuccess);
    EXPECT_EQ(cuda().event_query(event), kErrorNotReady);
    EXPECT_EQ(cuda().stream_wait_event(second, event, 0), kSuccess);
    EXPECT_EQ(cuda().memset_d8_async(pointer, 'b', 4, second), kSuccess);
    EXPECT_EQ(cuda().memset_d8_async(pointer + 4, 'c', 4, third), kSuccess);
    EXPECT_EQ(cuda().stream_synchronize(third), kSuccess);
    EXPECT_EQ(read(pointer + 4, 4), "cccc");
    EXPECT_NE(read(pointer, 4), "bbbb");
    ASSERT_EQ(cuda().hold(first, 0), 0);
    EXPECT_EQ(cuda().stream_synchronize(second), kSuccess);
    EXPECT_EQ(read(pointer, 4), "bbbb") << "the first stream's came before";
    EXPECT_EQ(cuda().stream_wait_event(nullptr, event, 0), kSuccess);
    EXPECT_EQ(cuda().stream_wait_event(second, nullptr, 0), kErrorInvalidHandle);
    EXPECT_EQ(cuda().stream_wait_event(reinterpret_cast<CUstream>(4096), event, 0), kErrorInvalidHandle);
    EXPECT_EQ(cuda().hold(nullptr, 1), -1);
}

TEST(FakeCudaStream, StreamsHaveIds) {
    if (!in_child()) return;
    start();
    if (cuda().stream_get_id == nullptr) return;  // an older driver
    auto id_of = [](CUstream stream) {
        unsigned long long id = 0;
        EXPECT_EQ(cuda().stream_get_id(stream, &id), kSuccess);
        return id;
    };
    CUstream stream = nullptr;
    ASSERT_EQ(cuda().stream_create(&stream, kStreamNonBlocking), kSuccess);
    const auto first = id_of(stream);
    EXPECT_EQ(id_of(stream), first);
    EXPECT_EQ(cuda().stream_destroy(stream), kSuccess);
    ASSERT_EQ(cuda().stream_create(&stream, kStreamNonBlocking), kSuccess);
    EXPECT_NE(id_of(stream), first) << "also if its handle is the same";
    EXPECT_EQ(id_of(nullptr), id_of(reinterpret_cast<CUstream>(kStreamLegacy)));
    EXPECT_NE(id_of(nullptr), id_of(reinterpret_cast<CUstream>(kStreamPerThread)));
    EXPECT_NE(id_of(nullptr), id_of(stream));
    const auto mine = id_of(reinterpret_cast<CUstream>(kStreamPerThread));
    std::thread([&] {
        start();
        EXPECT_NE(id_of(reinterpret_cast<CUstream>(kStreamPerThread)), mine) << "each thread has its own";
    }).join();
    EXPECT_EQ(cuda().stream_destroy(stream), kSuccess);
}

TEST(FakeCudaStream, WhatIsNotThere) {
    if (!in_child_of_fake()) return;
    start();
    CUevent event = nullptr;
    EXPECT_EQ(cuda().event_create(nullptr, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().event_create(&event, 99), kErrorInvalidValue);
    EXPECT_EQ(cuda().event_query(reinterpret_cast<CUevent>(4096)), kErrorInvalidHandle);
    EXPECT_EQ(cuda().event_synchronize(nullptr), kErrorInvalidHandle);
    EXPECT_EQ(cuda().event_destroy(nullptr), kErrorInvalidHandle);
    ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
    EXPECT_EQ(cuda().event_record(event, reinterpret_cast<CUstream>(4096)), kErrorInvalidHandle);
    EXPECT_EQ(cuda().event_record(event, nullptr), kSuccess);
    EXPECT_EQ(cuda().event_query(event), kSuccess);
    EXPECT_EQ(cuda().event_destroy(event), kSuccess);
    EXPECT_EQ(cuda().event_destroy(event), kErrorInvalidHandle);
    char bus[32] = {};
    EXPECT_EQ(cuda().device_get_pci_bus_id(bus, sizeof bus, 0), kSuccess);
    EXPECT_EQ(std::string(bus), "FA4E:00:00.0");
    EXPECT_EQ(cuda().device_get_pci_bus_id(bus, sizeof bus, 9), kErrorInvalidDevice);
}

}  // namespace
}  // namespace fakecuda_test

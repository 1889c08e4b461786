// The requirements of every device, as one suite. A program includes this and instantiates it with its devices.
#pragma once

#include <fcntl.h>
#include <functional>
#include <numeric>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "device/device.h"

namespace gshm::core::test {

struct DeviceCase {
    std::string name;
    // An error skips the test (GTEST_SKIP in the fixture).
    std::function<Result<std::unique_ptr<Device>>()> make;
};
inline void PrintTo(const DeviceCase& device, std::ostream* out) {
    *out << device.name;
}

class DeviceSuite : public ::testing::TestWithParam<DeviceCase> {
protected:
    void SetUp() override {
        auto made = GetParam().make();
        if (!made) GTEST_SKIP() << made.error().message;
        device_ = std::move(*made);
        unit_ = device_->info().granularity_bytes;
    }
    std::unique_ptr<Extent> allocate(uint64_t units = 1) {
        auto extent = device_->allocate(units * unit_, {});
        EXPECT_TRUE(extent) << (extent ? "" : extent.error().message);
        return extent ? std::move(*extent) : nullptr;
    }
    static std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
        std::vector<std::byte> data(bytes);
        for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
        return data;
    }
    static std::vector<std::byte> read(const Extent& extent, uint64_t offset, size_t bytes) {
        std::vector<std::byte> data(bytes);
        EXPECT_TRUE(extent.copy_out(offset, data));
        return data;
    }

    std::unique_ptr<Device> device_;
    uint64_t unit_ = 0;
};

TEST_P(DeviceSuite, DescribesItself) {
    const DeviceInfo& info = device_->info();
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.model.empty());
    EXPECT_GT(info.capacity_bytes, 0u);
    EXPECT_EQ(info.granularity_bytes & (info.granularity_bytes - 1), 0u) << "a power of two";
    EXPECT_NE(info.handle_kinds & kHandlePosixFd, 0u);
}

TEST_P(DeviceSuite, NewMemoryIsZeroAlsoAfterReuse) {
    for (int round = 0; round < 3; ++round) {
        auto extent = allocate(2);
        ASSERT_TRUE(extent);
        EXPECT_EQ(extent->size(), 2 * unit_);
        EXPECT_NE(extent->address(), 0u);
        for (auto byte : read(*extent, 0, extent->size())) ASSERT_EQ(byte, std::byte{0});
        ASSERT_TRUE(extent->fill(0, extent->size(), 0xFF));
    }
}

TEST_P(DeviceSuite, CopiesAndFillsRanges) {
    auto extent = allocate();
    auto data = pattern(unit_, 1);
    ASSERT_TRUE(extent->copy_in(0, data));
    EXPECT_EQ(read(*extent, 0, unit_), data);
    for (auto [offset, bytes] :
         {std::pair<uint64_t, size_t>{0, 1}, {1, 1}, {3, 4093}, {unit_ - 1, 1}, {unit_ / 2, 17}}) {
        auto piece = pattern(bytes, 7);
        ASSERT_TRUE(extent->copy_in(offset, piece));
        EXPECT_EQ(read(*extent, offset, bytes), piece);
        std::copy(piece.begin(), piece.end(), data.begin() + static_cast<long>(offset));
    }
    ASSERT_TRUE(extent->fill(100, 1000, 0xAB));
    std::fill_n(data.begin() + 100, 1000, std::byte{0xAB});
    EXPECT_EQ(read(*extent, 0, unit_), data);
    EXPECT_TRUE(extent->copy_in(unit_, {}));
    EXPECT_TRUE(extent->fill(unit_, 0, 1));
}

// The basis of mirrors: the default stream of the device, and whether the CPU needs copies.
TEST_P(DeviceSuite, CopiesInTheOrderOfAQueue) {
    auto extent = allocate();
    for (unsigned round = 0; round < 8; ++round) {
        const auto data = pattern(unit_, round);
        std::vector<std::byte> back(unit_);
        // Several copies in flight.
        ASSERT_TRUE(extent->begin_copy_in(0, std::span(data).first(unit_ / 2), nullptr));
        ASSERT_TRUE(extent->begin_copy_in(unit_ / 2, std::span(data).subspan(unit_ / 2), nullptr));
        ASSERT_TRUE(extent->begin_copy_out(0, back, nullptr));
        ASSERT_TRUE(extent->finish(nullptr));
        ASSERT_EQ(back, data);
    }
    std::vector<std::byte> few(16);
    EXPECT_EQ(extent->begin_copy_in(unit_ - 15, few, nullptr).error().code, EINVAL);
    EXPECT_EQ(extent->begin_copy_out(unit_ - 15, few, nullptr).error().code, EINVAL);
    auto reader = device_->import_fd(extent->export_fd(Access::read)->get(), unit_, Access::read);
    ASSERT_TRUE(reader);
    EXPECT_EQ((*reader)->begin_copy_in(0, few, nullptr).error().code, EACCES);
}

TEST_P(DeviceSuite, TheCpuReachesItOrHasACopier) {
    auto extent = allocate();
    ASSERT_TRUE(extent->fill(0, unit_, 0x3C));
    EXPECT_EQ(extent->is_host_memory(), extent->copier() == nullptr);
    // The kernel accesses the memory: write() returns EFAULT where a direct access would fault.
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    auto reader = UniqueFd::adopt(ends[0]);
    auto writer = UniqueFd::adopt(ends[1]);
    const ssize_t put = write(writer.get(), reinterpret_cast<const void*>(extent->address()), 1);
    EXPECT_EQ(put == 1, extent->is_host_memory());
    char byte = 0;
    if (put == 1) {
        ASSERT_EQ(::read(reader.get(), &byte, 1), 1);
        EXPECT_EQ(byte, 0x3C);
    } else {
        EXPECT_EQ(errno, EFAULT);
    }
}

// The next daemon restores extents in this way.
TEST_P(DeviceSuite, TakesUpWhatWasAllocatedBefore) {
    auto extent = allocate(2);
    const auto data = pattern(2 * unit_, 6);
    ASSERT_TRUE(extent->copy_in(0, data));
    auto kept = UniqueFd::clone(*extent->descriptor_for_keeper());
    extent.reset();
    auto again = device_->restore(std::move(*kept), 2 * unit_, {});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(read(**again, 0, 2 * unit_), data);
    ASSERT_TRUE((*again)->fill(0, 16, 1)) << "it is its own";
    auto fd = (*again)->export_fd(Access::write);
    ASSERT_TRUE(fd) << fd.error().message;
    EXPECT_TRUE(device_->import_fd(fd->get(), 2 * unit_, Access::write));
}

TEST_P(DeviceSuite, RefusesRangesOutside) {
    auto extent = allocate();
    std::vector<std::byte> data(16);
    EXPECT_EQ(extent->copy_in(unit_ - 15, data).error().code, EINVAL);
    EXPECT_EQ(extent->copy_out(unit_ + 1, data).error().code, EINVAL);
    EXPECT_EQ(extent->copy_out(~uint64_t{0} - 3, data).error().code, EINVAL);
    EXPECT_EQ(extent->fill(1, unit_, 0).error().code, EINVAL);
    EXPECT_EQ(extent->fill(8, ~uint64_t{0} - 4, 0).error().code, EINVAL);
}

TEST_P(DeviceSuite, ExportsADescriptorThatIsCloseOnExecAndImports) {
    auto extent = allocate();
    auto data = pattern(unit_, 3);
    ASSERT_TRUE(extent->copy_in(0, data));
    auto fd = extent->export_fd(Access::write);
    ASSERT_TRUE(fd) << fd.error().message;
    EXPECT_NE(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(*extent->descriptor(Access::write), *extent->descriptor(Access::write)) << "exported once";
    auto again = device_->import_fd(fd->get(), unit_, Access::write);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(read(**again, 0, unit_), data);
    // Two mappings of the same memory.
    ASSERT_TRUE((*again)->fill(0, 64, 0x5A));
    EXPECT_EQ(read(*extent, 0, 64), std::vector<std::byte>(64, std::byte{0x5A}));
    // An import has no descriptor, unless it is given one to keep.
    EXPECT_FALSE((*again)->export_fd(Access::write));
    (*again)->keep_descriptor(*UniqueFd::clone(fd->get()));
    EXPECT_TRUE((*again)->export_fd(Access::write));
    // It outlives the mapping that it was exported from.
    extent.reset();
    EXPECT_EQ(read(**again, 64, unit_ - 64), std::vector<std::byte>(data.begin() + 64, data.end()));
}

TEST_P(DeviceSuite, DescriptorAloneKeepsTheMemory) {
    auto extent = allocate();
    auto data = pattern(unit_, 4);
    ASSERT_TRUE(extent->copy_in(0, data));
    auto fd = extent->export_fd(Access::write);
    ASSERT_TRUE(fd);
    extent.reset();
    auto again = device_->import_fd(fd->get(), unit_, Access::read);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(read(**again, 0, unit_), data);
}

TEST_P(DeviceSuite, ReadOnlyImportRefusesWrites) {
    auto extent = allocate();
    auto fd = extent->export_fd(Access::read);
    ASSERT_TRUE(fd);
    auto reader = device_->import_fd(fd->get(), unit_, Access::read);
    ASSERT_TRUE(reader) << reader.error().message;
    std::vector<std::byte> data(16);
    EXPECT_EQ((*reader)->copy_in(0, data).error().code, EACCES);
    EXPECT_EQ((*reader)->fill(0, 16, 1).error().code, EACCES);
    EXPECT_TRUE((*reader)->copy_out(0, data));
}

TEST_P(DeviceSuite, RefusesGarbageToImport) {
    auto null = UniqueFd::adopt(open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_FALSE(device_->import_fd(null.get(), unit_, Access::write));
    EXPECT_FALSE(device_->import_fd(-1, unit_, Access::write));
    EXPECT_FALSE(device_->import_fabric(FabricHandle{}, unit_, Access::write));
    auto extent = allocate();
    auto fd = extent->export_fd(Access::write);
    EXPECT_FALSE(device_->import_fd(fd->get(), 2 * unit_, Access::write)) << "larger than it is";
    // The device still works.
    EXPECT_TRUE(device_->import_fd(fd->get(), unit_, Access::write));
}

TEST_P(DeviceSuite, OtherHandleKindsWorkOrSaySo) {
    auto extent = allocate();
    auto data = pattern(unit_, 5);
    ASSERT_TRUE(extent->copy_in(0, data));
    uint32_t kinds = device_->info().handle_kinds;
    auto fabric = extent->export_fabric();
    ASSERT_EQ(fabric.has_value(), (kinds & kHandleFabric) != 0) << (fabric ? "" : fabric.error().message);
    if (fabric) {
        auto imported = device_->import_fabric(*fabric, unit_, Access::read);
        ASSERT_TRUE(imported) << imported.error().message;
        EXPECT_EQ(read(**imported, 0, unit_), data);
    } else {
        EXPECT_EQ(fabric.error().code, EOPNOTSUPP);
    }
    auto dmabuf = extent->export_dmabuf();
    ASSERT_EQ(dmabuf.has_value(), (kinds & kHandleDmaBuf) != 0) << (dmabuf ? "" : dmabuf.error().message);
    if (!dmabuf) {
        EXPECT_EQ(dmabuf.error().code, EOPNOTSUPP);
        return;
    }
    auto imported = device_->import_dmabuf(dmabuf->get(), unit_, Access::write);
    if (!imported && imported.error().code == EOPNOTSUPP) return;  // drivers before CUDA 13
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(read(**imported, 0, unit_), data);
    EXPECT_GE(fcntl(dmabuf->get(), F_GETFD), 0) << "the descriptor stays the caller's";
}

TEST_P(DeviceSuite, CompressibleWhereItSaysSo) {
    auto extent = device_->allocate(unit_, {.compressible = true});
    if (!device_->info().compressible) {
        ASSERT_FALSE(extent);
        EXPECT_EQ(extent.error().code, EOPNOTSUPP);
        return;
    }
    ASSERT_TRUE(extent) << extent.error().message;
    EXPECT_EQ(read(**extent, 0, 16), std::vector<std::byte>(16));
    auto fd = (*extent)->export_fd(Access::write);
    ASSERT_TRUE(fd) << fd.error().message;
    EXPECT_TRUE(device_->import_fd(fd->get(), unit_, Access::read));
}

TEST_P(DeviceSuite, ManyThreadsAtOnce) {
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([this, t, &failures] {
            for (unsigned i = 0; i < 8; ++i) {
                auto extent = device_->allocate(unit_, {});
                auto data = pattern(4096, t * 100 + i);
                std::vector<std::byte> back(4096);
                bool good = extent && (*extent)->copy_in(i * 4096 % unit_, data) &&
                            (*extent)->copy_out(i * 4096 % unit_, back) && back == data;
                if (!good) ++failures;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
}

TEST_P(DeviceSuite, NothingIsLeftOpen) {
    auto count = [] {
        size_t open = 0;
        for (int fd = 0; fd < 512; ++fd) open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
        return open;
    };
    {
        auto warm = allocate();
        (void)warm->export_fd(Access::read);
    }
    size_t before = count();
    for (int i = 0; i < 10; ++i) {
        auto extent = allocate();
        auto fd = extent->export_fd(Access::read);
        auto imported = device_->import_fd(fd->get(), unit_, Access::read);
        EXPECT_TRUE(imported);
    }
    EXPECT_EQ(count(), before);
}

}  // namespace gshm::core::test

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/guarded_copy.h"
#include "device/host.h"
#include "device/limit.h"

namespace gshm::core::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class HostFileTest : public ::testing::Test {
protected:
    std::unique_ptr<Extent> make(uint64_t bytes) {
        return *device.allocate(bytes, {.compressible = false, .resizable = true});
    }
    std::string bytes_at(const Extent& extent, uint64_t offset, size_t count) {
        std::string text(count, '?');
        EXPECT_TRUE(extent.copy_out(offset, std::as_writable_bytes(std::span(text))));
        return text;
    }
    static std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

    LimitDevice device{*HostDevice::create(8 * kMiB), 0};
};

TEST_F(HostFileTest, ChangesItsSizeInPlace) {
    auto extent = make(0);
    ASSERT_NE(extent->file(), nullptr);
    EXPECT_EQ(extent->size(), 0u);
    ASSERT_TRUE(extent->file()->resize(10'000));
    EXPECT_EQ(extent->size(), 10'000u);
    ASSERT_TRUE(extent->copy_in(9'990, bytes("0123456789")));
    ASSERT_TRUE(extent->file()->resize(9'995));
    ASSERT_TRUE(extent->file()->resize(10'000));
    EXPECT_EQ(bytes_at(*extent, 9'990, 10), std::string("01234\0\0\0\0\0", 10));
    EXPECT_EQ(bytes_at(*extent, 20'000, 2), std::string(2, '\0'));
    ASSERT_TRUE(extent->fill(0, 5000, 7));
    EXPECT_EQ(bytes_at(*extent, 4999, 2), std::string("\7\0", 2));
}

TEST_F(HostFileTest, TakesFromTheDeviceWhatItHas) {
    auto extent = make(2 * kMiB);
    EXPECT_EQ(device.used_bytes(), 2 * kMiB);
    ASSERT_TRUE(extent->file()->resize(4 * kMiB));
    EXPECT_EQ(device.used_bytes(), 4 * kMiB);
    EXPECT_EQ(extent->file()->resize(9 * kMiB).error().code, ENOSPC);
    EXPECT_EQ(device.used_bytes(), 4 * kMiB);
    EXPECT_EQ(device.allocate(5 * kMiB, {}).error().code, ENOSPC);
    ASSERT_TRUE(extent->file()->allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * kMiB));
    EXPECT_EQ(device.used_bytes(), 2 * kMiB);
    EXPECT_EQ(extent->file()->allocate(FALLOC_FL_KEEP_SIZE, 4 * kMiB, 8 * kMiB).error().code, ENOSPC);
    // Another process writes to it.
    ASSERT_EQ(pwrite(extent->file()->fd(), "x", 1, 0), 1);
    ASSERT_TRUE(extent->file()->status());
    EXPECT_GT(device.used_bytes(), 2 * kMiB);
    ASSERT_TRUE(extent->file()->resize(0));
    EXPECT_EQ(device.used_bytes(), 0u);
    extent.reset();
    EXPECT_EQ(device.used_bytes(), 0u);
}

TEST_F(HostFileTest, AReadersDescriptorStaysOne) {
    auto extent = make(kMiB);
    int fd = *extent->descriptor(Access::read);
    EXPECT_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    EXPECT_EQ(ftruncate(fd, 0), -1);
    auto imported = device.import_fd(*extent->descriptor(Access::write), kMiB, Access::write);
    ASSERT_TRUE(imported);
    ASSERT_TRUE((*imported)->copy_in(5, bytes("shared")));
    EXPECT_EQ(bytes_at(*extent, 5, 6), "shared");
}

TEST_F(HostFileTest, OneThatIsTakenAwayIsNoSignal) {
    auto extent = make(kMiB);
    auto mapping = extent->file()->mapping();
    ASSERT_TRUE(mapping);
    EXPECT_TRUE(guarded_copy((*mapping)->data() + 100, "here", 4));
    EXPECT_EQ(bytes_at(*extent, 100, 4), "here");
    ASSERT_EQ(ftruncate(extent->file()->fd(), 0), 0);
    EXPECT_FALSE(guarded_copy((*mapping)->data() + 100, "gone", 4));
    EXPECT_TRUE(extent->copy_in(0, bytes("again")));  // the file stays usable
    EXPECT_EQ(bytes_at(*extent, 0, 5), "again");
}

TEST_F(HostFileTest, TheKernelMayStillUseItsBytes) {
    auto extent = make(2 * kMiB);
    if (!static_cast<HostDevice&>(device.upstream()).folder()) GTEST_SKIP() << "no private tmpfs: needs root";
    EXPECT_EQ(device.unaccounted_bytes(), 0u);
    auto holder = UniqueFd::clone(extent->file()->fd());  // as a process that has not ended its close() yet
    ASSERT_TRUE(holder);
    extent.reset();
    EXPECT_EQ(device.used_bytes(), 0u);
    EXPECT_EQ(device.unaccounted_bytes(), 2 * kMiB);
    holder->reset();
    EXPECT_EQ(device.unaccounted_bytes(), 0u);
}

TEST_F(HostFileTest, CopiesFromOthers) {
    auto source = make(3 * kMiB);
    ASSERT_TRUE(source->fill(0, 3 * kMiB, 9));
    auto target = make(0);
    ASSERT_TRUE(target->copy_from(100, *source, kMiB, kMiB + 5));
    EXPECT_EQ(bytes_at(*target, 99, 2), std::string("\0\11", 2));
    EXPECT_EQ(target->file()->status()->size_bytes, kMiB + 105);
}

}  // namespace
}  // namespace gshm::core::test

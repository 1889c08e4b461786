#include <cstring>
#include <fcntl.h>
#include <filesystem>
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
    ASSERT_EQ(pwrite((*extent->file()->open())->get(), "x", 1, 0), 1);
    ASSERT_TRUE(extent->file()->status());
    EXPECT_GT(device.used_bytes(), 2 * kMiB);
    ASSERT_TRUE(extent->file()->resize(0));
    EXPECT_EQ(device.used_bytes(), 0u);
    extent.reset();
    EXPECT_EQ(device.used_bytes(), 0u);
}

// The limit can change while files exist, also that of writes by other processes, which only the kernel sees.
TEST_F(HostFileTest, TheLimitRisesAndFalls) {
    auto extent = make(6 * kMiB);
    const DeviceInfo& before = device.info();
    device.set_limit(16 * kMiB);
    EXPECT_EQ(device.info().capacity_bytes, 16 * kMiB);
    EXPECT_EQ(before.capacity_bytes, 8 * kMiB) << "another thread may be reading it";
    ASSERT_TRUE(extent->file()->resize(12 * kMiB));
    const bool bounded_by_kernel = extent->file()->held_fd() < 0;  // a file of the private tmpfs
    const std::string block(kMiB, 'x');
    auto write_at = [&](uint64_t offset) {
        return pwrite((*extent->file()->open())->get(), block.data(), block.size(), static_cast<off_t>(offset)) ==
               static_cast<ssize_t>(block.size());
    };
    if (bounded_by_kernel) {
        EXPECT_TRUE(write_at(14 * kMiB)) << "more than the tmpfs had at first";
        ASSERT_TRUE(extent->file()->resize(12 * kMiB));
    }
    // Less than what is in use: that stays, and there is no more.
    device.set_limit(4 * kMiB);
    EXPECT_EQ(device.used_bytes(), 12 * kMiB);
    EXPECT_EQ(bytes_at(*extent, 11 * kMiB, 1), std::string(1, '\0'));
    EXPECT_EQ(extent->file()->resize(13 * kMiB).error().code, ENOSPC);
    EXPECT_EQ(device.allocate(4096, {}).error().code, ENOSPC);
    if (bounded_by_kernel) EXPECT_FALSE(write_at(13 * kMiB));
    ASSERT_TRUE(extent->file()->resize(2 * kMiB));
    EXPECT_TRUE(extent->file()->resize(4 * kMiB));
    EXPECT_EQ(extent->file()->resize(5 * kMiB).error().code, ENOSPC);
    // The same limit again and again costs nothing.
    const DeviceInfo* with_four = &device.info();
    device.set_limit(16 * kMiB);
    device.set_limit(4 * kMiB);
    EXPECT_EQ(&device.info(), with_four);
}

TEST_F(HostFileTest, AReadersDescriptorStaysOne) {
    auto extent = make(kMiB);
    auto reader = *extent->export_fd(Access::read);
    EXPECT_EQ(fcntl(reader.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
    EXPECT_EQ(ftruncate(reader.get(), 0), -1);
    auto imported = device.import_fd(extent->export_fd(Access::write)->get(), kMiB, Access::write);
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
    ASSERT_EQ(ftruncate((*extent->file()->open())->get(), 0), 0);
    EXPECT_FALSE(guarded_copy((*mapping)->data() + 100, "gone", 4));
    EXPECT_TRUE(extent->copy_in(0, bytes("again")));  // the file stays usable
    EXPECT_EQ(bytes_at(*extent, 0, 5), "again");
}

TEST_F(HostFileTest, TheKernelMayStillUseItsBytes) {
    auto extent = make(2 * kMiB);
    if (!static_cast<HostDevice&>(device.upstream()).folder()) GTEST_SKIP() << "no private tmpfs: needs root";
    EXPECT_EQ(device.unaccounted_bytes(), 0u);
    auto holder = UniqueFd::clone((*extent->file()->open())->get());  // as a process that has not ended its close() yet
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

class HostFolderTest : public HostFileTest {
protected:
    void SetUp() override {
        make(0);
        if (!host().folder()) GTEST_SKIP() << "no private tmpfs: needs root";
    }
    HostDevice& host() { return static_cast<HostDevice&>(device.upstream()); }
    // A second process of gshmd.
    std::unique_ptr<HostDevice> next() {
        auto device = *HostDevice::create(8 * kMiB);
        EXPECT_TRUE(device->adopt_folder(*UniqueFd::clone(*host().folder())));
        return device;
    }
    static size_t open_descriptors() {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return static_cast<size_t>(std::distance(begin(all), end(all)));
    }
};

TEST_F(HostFolderTest, FilesTakeNoDescriptors) {
    const size_t before = open_descriptors();
    std::vector<std::unique_ptr<Extent>> all;
    for (int i = 0; i < 1000; ++i) {
        all.push_back(make(1));
        ASSERT_TRUE(all.back()->copy_in(0, bytes("0123456789" + std::to_string(i))));
        ASSERT_TRUE(all.back()->file()->mapping());
    }
    for (int i = 0; i < 1000; ++i) {
        const std::string expected = "0123456789" + std::to_string(i);
        EXPECT_EQ(bytes_at(*all[static_cast<size_t>(i)], 0, expected.size()), expected);
    }
    EXPECT_LE(open_descriptors(), before + HostFolder::kMostOpen);
    all.clear();
    EXPECT_LE(open_descriptors(), before);
    EXPECT_EQ(device.unaccounted_bytes(), 0u);
}

// One that is used stays open, whatever happens to the others.
TEST_F(HostFolderTest, OneInUseStaysOpen) {
    auto extent = make(kMiB);
    auto fd = extent->file()->open();
    auto mapping = extent->file()->mapping();
    ASSERT_TRUE(fd && mapping);
    std::vector<std::unique_ptr<Extent>> others;
    for (size_t i = 0; i < 2 * HostFolder::kMostOpen; ++i) others.push_back(make(1));
    ASSERT_EQ(pwrite((*fd)->get(), "used", 4, 0), 4);
    EXPECT_EQ(memcmp((*mapping)->data(), "used", 4), 0);
    EXPECT_EQ(bytes_at(*extent, 0, 4), "used");
}

TEST_F(HostFolderTest, AKeptOneIsRestoredByItsKey) {
    auto extent = make(5000);
    ASSERT_TRUE(extent->copy_in(0, bytes("kept")));
    ASSERT_TRUE(extent->file()->keep(77).value());
    EXPECT_EQ(extent->file()->held_fd(), -1);
    extent.reset();
    auto later = next();
    EXPECT_EQ(later->restore_file(78).error().code, ENOENT);
    auto restored = later->restore_file(77);
    ASSERT_TRUE(restored);
    EXPECT_EQ((*restored)->size(), 5000u);
    EXPECT_EQ(bytes_at(**restored, 0, 4), "kept");
    (*restored)->file()->discard();
    restored->reset();
    EXPECT_EQ(later->restore_file(77).error().code, ENOENT);
}

// Files that were made and not kept, and keys that nothing names.
TEST_F(HostFolderTest, RemainsAreRemoved) {
    auto kept = make(1);
    auto dropped = make(1);
    auto unfinished = make(kMiB);
    ASSERT_TRUE(kept->file()->keep(1) && dropped->file()->keep(2));
    auto later = next();
    later->remove_files([](uint64_t key) { return key == 1; });
    EXPECT_TRUE(later->restore_file(1));
    EXPECT_EQ(later->restore_file(2).error().code, ENOENT);
    EXPECT_EQ(unfinished->export_fd(Access::read).error().code, ENOENT);
}

// Before files had names, the keeper had their descriptors.
TEST_F(HostFolderTest, OneWithoutANameGetsOne) {
    auto unnamed = UniqueFd::adopt(openat(*host().folder(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    ASSERT_EQ(pwrite(unnamed.get(), "older", 5, 0), 5);
    auto extent = device.restore(std::move(unnamed), 5, {.compressible = false, .resizable = true}, nullptr);
    ASSERT_TRUE(extent);
    EXPECT_GE((*extent)->file()->held_fd(), 0);
    ASSERT_TRUE((*extent)->file()->keep(5).value());
    EXPECT_EQ((*extent)->file()->held_fd(), -1);
    extent->reset();
    EXPECT_EQ(bytes_at(**next()->restore_file(5), 0, 5), "older");
}

}  // namespace
}  // namespace gshm::core::test

// Files as memory: allocation, growth, holders, and the identity of files and objects.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "mount/mount_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr size_t kMiB = 1 << 20;

std::string pattern(size_t bytes, unsigned seed) {
    std::string text(bytes, '\0');
    uint32_t state = seed * 2654435761u + 1;
    for (char& c : text) {
        state = state * 1664525u + 1013904223u;
        c = static_cast<char>(state >> 24);
    }
    return text;
}

class MountMemory : public ::testing::TestWithParam<Way>, protected MountFixture {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
        if (GetParam() == Way::cuda && !is_real_gpu()) {
            // The library of this process must find the same driver as the daemon.
            if (dlopen(fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) GTEST_SKIP() << "no fake driver";
            setenv("FAKECUDA_DEVICES", "2", 1);
            setenv("FAKECUDA_FABRIC", "1", 1);
        }
        ASSERT_TRUE(start_mounted(GetParam())) << log();
        auto connected = Client::connect({.dir = dir()});
        ASSERT_TRUE(connected) << connected.error().message;
        client_ = std::move(*connected);
    }
    uint64_t granularity() const { return GetParam() == Way::cuda ? 2 * kMiB : 4096; }
    uint64_t rounded(uint64_t bytes) const { return (bytes + granularity() - 1) / granularity() * granularity(); }
    // A thread frees memory asynchronously.
    uint64_t used_bytes_after_a_while(uint64_t expected) {
        for (int i = 0; i < 12'000 && used_bytes() != expected; ++i) usleep(10'000);
        return used_bytes();
    }
    std::string bytes_of(Object&& object) const { return bytes_of(object); }
    std::string bytes_of(Object& object) const {
        std::string bytes(object.size(), '\0');
        EXPECT_TRUE(object.copy_out(bytes));
        return bytes;
    }

    Client client_;
};

TEST_P(MountMemory, TruncateAllocatesAndFrees) {
    const uint64_t before = used_bytes();
    ASSERT_TRUE(write_file(at("buf"), ""));
    EXPECT_EQ(attribute(at("buf"), "user.allocation_size"), "");
    EXPECT_EQ(errno, ENODATA);
    EXPECT_EQ(attribute(at("buf"), "user.fabric_handle"), "");
    EXPECT_EQ(errno, ENODATA);
    ASSERT_EQ(truncate(at("buf").c_str(), 8 * kMiB + 5), 0);
    EXPECT_EQ(attribute(at("buf"), "user.allocation_size"), std::to_string(rounded(8 * kMiB + 5)));
    EXPECT_EQ(getxattr(at("buf").c_str(), "user.allocation_size", nullptr, 0), 7 + (rounded(8 * kMiB + 5) > 9999999));
    char small[3];
    EXPECT_EQ(getxattr(at("buf").c_str(), "user.allocation_size", small, sizeof small), -1);
    EXPECT_EQ(errno, ERANGE);
    struct stat info = {};
    ASSERT_EQ(stat(at("buf").c_str(), &info), 0);
    EXPECT_EQ(info.st_size, static_cast<off_t>(8 * kMiB + 5));
    EXPECT_GE(info.st_blocks * 512, info.st_size);
    struct statvfs device = {};
    ASSERT_EQ(statvfs(at("buf").c_str(), &device), 0);
    EXPECT_GE((device.f_blocks - device.f_bfree) * device.f_frsize, 8 * kMiB);
    EXPECT_GE(used_bytes(), before + 8 * kMiB);
    ASSERT_EQ(truncate(at("buf").c_str(), 0), 0);
    EXPECT_EQ(attribute(at("buf"), "user.allocation_size"), "");
    EXPECT_EQ(used_bytes_after_a_while(before), before);
    ASSERT_EQ(truncate(at("buf").c_str(), 8 * kMiB), 0);
    ASSERT_EQ(unlink(at("buf").c_str()), 0);
    EXPECT_EQ(used_bytes_after_a_while(before), before);
}

TEST_P(MountMemory, GrowingKeepsBytesAndAddsZeros) {
    const std::string head = pattern(3 * kMiB + 17, 1);
    ASSERT_TRUE(write_file(at("f"), head));
    ASSERT_EQ(truncate(at("f").c_str(), 9 * kMiB), 0);
    EXPECT_EQ(read_file(at("f")), head + std::string(9 * kMiB - head.size(), '\0'));
    ASSERT_EQ(truncate(at("f").c_str(), 1000), 0);
    EXPECT_EQ(read_file(at("f")), head.substr(0, 1000));
    EXPECT_EQ(attribute(at("f"), "user.allocation_size"), std::to_string(rounded(1000)));
    ASSERT_EQ(truncate(at("f").c_str(), 5000), 0);
    EXPECT_EQ(read_file(at("f")), head.substr(0, 1000) + std::string(4000, '\0'));
}

TEST_P(MountMemory, AppendingTakesNoMoreThanItNeedsInTheEnd) {
    std::string all;
    int fd = open(at("f").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ASSERT_GE(fd, 0);
    for (unsigned i = 0; i < 23; ++i) {
        const std::string piece = pattern(700'001, i);
        ASSERT_EQ(write(fd, piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
        all += piece;
    }
    close(fd);
    EXPECT_EQ(read_file(at("f")), all);
    for (int i = 0; i < 200 && attribute(at("f"), "user.allocation_size") != std::to_string(rounded(all.size())); ++i) {
        usleep(10'000);  // the memory is trimmed after close() has returned
    }
    EXPECT_EQ(attribute(at("f"), "user.allocation_size"), std::to_string(rounded(all.size())));
    auto object = client_.open("f");
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_EQ(bytes_of(*object), all);
}

// docs/mount.md: on host a file is resized in place; on a GPU it moves, and holders keep the old memory.
TEST_P(MountMemory, HoldersOfAFileThatOutgrowsItsMemory) {
    const std::string head = pattern(2 * kMiB, 3);
    ASSERT_TRUE(write_file(at("f"), head));
    auto holder = client_.open("f", {.write = true});
    ASSERT_TRUE(holder) << holder.error().message;
    const std::string tail = pattern(kMiB, 4);
    ASSERT_TRUE(write_file(at("f"), tail, O_APPEND));
    EXPECT_EQ(holder->size(), head.size());
    EXPECT_EQ(bytes_of(*holder), head);
    auto now = client_.open("f");
    ASSERT_TRUE(now) << now.error().message;
    EXPECT_EQ(bytes_of(*now), head + tail);

    ASSERT_TRUE(holder->copy_in(std::string("changed")));
    const bool in_place = GetParam() != Way::cuda;
    EXPECT_EQ(read_file(at("f")).substr(0, 7), in_place ? "changed" : head.substr(0, 7));
    auto devices = client_.devices();
    ASSERT_TRUE(devices);
    EXPECT_EQ((*devices)[0].unlinked_bytes, in_place ? 0 : head.size());  // held without a name
    holder->close();
    now->close();
    ASSERT_TRUE(client_.ping());
    EXPECT_EQ((*client_.devices())[0].unlinked_bytes, 0u);
}

TEST_P(MountMemory, ObjectsAreFilesAndFilesAreObjects) {
    for (size_t size : {size_t{5000}, 3 * kMiB + 1}) {  // in a slab, and in an extent of its own
        const std::string name = "models/w" + std::to_string(size);
        const std::string bytes = pattern(size, 7);
        auto made = client_.create({.name = name, .size_bytes = size, .mode = 0640, .keep = true});
        ASSERT_TRUE(made) << made.error().message;
        ASSERT_TRUE(made->copy_in(bytes));
        struct stat info = {};
        ASSERT_EQ(stat(at(name).c_str(), &info), 0);
        EXPECT_EQ(info.st_size, static_cast<off_t>(size));
        EXPECT_EQ(info.st_mode, static_cast<mode_t>(S_IFREG | 0640));
        EXPECT_EQ(read_file(at(name)), bytes);
        // Writes of the mount are visible to the library and the reverse, while both have the object open.
        int fd = open(at(name).c_str(), O_RDWR);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(pwrite(fd, "by the mount", 12, 100), 12);
        EXPECT_EQ(bytes_of(*made).substr(100, 12), "by the mount");
        ASSERT_TRUE(made->copy_in(std::string("by the library"), 1000));
        char seen[14];
        ASSERT_EQ(pread(fd, seen, 14, 1000), 14);
        EXPECT_EQ(std::string(seen, 14), "by the library");
        close(fd);
        made->close();
        // The file grows beyond its size at creation.
        ASSERT_TRUE(write_file(at(name), "more", O_APPEND));
        auto again = client_.open(name);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(again->size(), size + 4);
        EXPECT_EQ(bytes_of(*again).substr(size), "more");
        again->close();
        ASSERT_TRUE(client_.unlink(name));
        // The kernel is notified asynchronously.
        for (int i = 0; i < 12'000 && access(at(name).c_str(), F_OK) == 0; ++i) usleep(10'000);
        EXPECT_EQ(access(at(name).c_str(), F_OK), -1);
    }
    // An implicit directory, removed with its last entry; the kernel is notified asynchronously here too.
    for (int i = 0; i < 12'000 && access(at("models").c_str(), F_OK) == 0; ++i) usleep(10'000);
    EXPECT_EQ(access(at("models").c_str(), F_OK), -1);

    ASSERT_EQ(mkdir(at("d").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("d/f"), "from the mount"));
    EXPECT_EQ(set_attribute(at("d/f"), "user.shape", "2x2"), 0);
    auto opened = client_.open("d/f");
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(bytes_of(*opened), "from the mount");
    EXPECT_EQ(client_.attribute("d/f", "shape").value(), "2x2");
    ASSERT_TRUE(client_.set_attribute("d/f", "layout", std::string("row")));
    EXPECT_EQ(attribute(at("d/f"), "user.layout"), "row");
    EXPECT_EQ(attribute(at("d/f"), "user.id"), std::to_string(opened->id()));
    ASSERT_TRUE(client_.rename("d/f", "d/g"));
    for (int i = 0; i < 12'000 && access(at("d/f").c_str(), F_OK) == 0; ++i) usleep(10'000);
    EXPECT_EQ(read_file(at("d/g")), "from the mount");
    EXPECT_EQ(access(at("d/f").c_str(), F_OK), -1);
    ASSERT_EQ(symlink("d/g", at("l").c_str()), 0);
    EXPECT_EQ(bytes_of(*client_.open("l")), "from the mount");
}

TEST_P(MountMemory, AnEmptyFileIsAnObjectWithoutMemory) {
    ASSERT_TRUE(write_file(at("f"), ""));
    auto object = client_.open("f");
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_EQ(object->size(), 0u);
    EXPECT_EQ(object->data(), nullptr);
    auto info = client_.stat("f");
    ASSERT_TRUE(info);
    EXPECT_EQ(info->size_bytes, 0u);
}

TEST_P(MountMemory, APathIsEnough) {
    const std::string bytes = pattern(2 * kMiB, 9);
    ASSERT_TRUE(write_file(at("f"), bytes));
    auto object = Object::open_path(at("f"), {.write = true});
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_EQ(bytes_of(*object), bytes);
    ASSERT_NE(object->data(), nullptr);
    ASSERT_TRUE(object->copy_in(std::string("written")));
    EXPECT_EQ(read_file(at("f")).substr(0, 7), "written");
    EXPECT_EQ(bytes_of(*client_.open_path(at("f"))).substr(0, 7), "written");
    EXPECT_EQ(Object::open_path(scratch()).error().code, EINVAL);
    EXPECT_EQ(Object::open_path(at("none")).error().code, ENOENT);
}

TEST_P(MountMemory, SealedFilesAreNotWritten) {
    ASSERT_TRUE(write_file(at("f"), "final"));
    int fd = open(at("f").c_str(), O_RDWR);
    EXPECT_EQ(set_attribute(at("f"), "user.state", "sealed"), EBUSY);
    close(fd);
    EXPECT_EQ(set_attribute(at("f"), "user.state", "sealed"), 0);  // although the daemon hears of close() later
    EXPECT_EQ(attribute(at("f"), "user.state"), "sealed");
    EXPECT_EQ(open(at("f").c_str(), O_WRONLY), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(truncate(at("f").c_str(), 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(set_attribute(at("f"), "user.state", "open"), EPERM);
    EXPECT_EQ(set_attribute(at("f"), "user.state", "frozen"), EINVAL);
    EXPECT_EQ(read_file(at("f")), "final");
    EXPECT_TRUE(client_.open("f", {.sealed_only = true}));
    EXPECT_EQ(unlink(at("f").c_str()), 0);
}

TEST_P(MountMemory, AFileMovesToAnotherDevice) {
    if (GetParam() != Way::cuda) GTEST_SKIP() << "there is one device";
    std::string bytes = pattern(3 * kMiB + 5, 1);
    ASSERT_TRUE(write_file(at("f"), bytes));
    struct stat before = {};
    struct stat after = {};
    ASSERT_EQ(stat(at("f").c_str(), &before), 0);
    auto moved = [&](const char* device) {
        // A close reaches gshmd after it has returned.
        for (int i = 0; i < 500; ++i) {
            auto status = client_.move("f", device);
            if (status || status.error().code != EBUSY) return status.has_value();
            usleep(10'000);
        }
        return false;
    };
    ASSERT_TRUE(moved("host"));
    auto is_changed = [&] {
        if (stat(at("f").c_str(), &after) != 0) return false;
        return std::pair(after.st_ctim.tv_sec, after.st_ctim.tv_nsec) >
               std::pair(before.st_ctim.tv_sec, before.st_ctim.tv_nsec);
    };
    // The kernel's cached attributes are invalidated asynchronously.
    for (int i = 0; i < 12'000 && !is_changed(); ++i) usleep(10'000);
    EXPECT_TRUE(is_changed());
    EXPECT_EQ(after.st_ino, before.st_ino);
    EXPECT_EQ(after.st_size, before.st_size);
    EXPECT_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    EXPECT_EQ(attribute(at("f"), "user.device"), "host");
    EXPECT_EQ(read_file(at("f")), bytes);

    // On `host` the kernel may use the memory of an open file.
    int fd = open(at("f").c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    auto refused = client_.move("f", "cuda:0");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EBUSY);
    close(fd);
    ASSERT_TRUE(moved("cuda:0"));

    // Between GPUs every byte passes through gshmd: an open file can move, and grow there.
    const auto devices = client_.devices();
    ASSERT_TRUE(devices);
    if (std::ranges::none_of(*devices, [](const auto& device) { return device.name == "cuda:1"; })) {
        EXPECT_TRUE(read_file(at("f")) == bytes);
        GTEST_SKIP() << "the rest: this machine has one GPU";
    }
    fd = open(at("f").c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    ASSERT_TRUE(client_.move("f", "cuda:1"));
    const std::string more = pattern(2 * kMiB, 2);
    ASSERT_EQ(pwrite(fd, more.data(), more.size(), static_cast<off_t>(bytes.size())),
              static_cast<ssize_t>(more.size()));
    bytes += more;
    std::string seen(bytes.size(), '\0');
    EXPECT_EQ(pread(fd, seen.data(), seen.size(), 0), static_cast<ssize_t>(seen.size()));
    EXPECT_TRUE(seen == bytes);
    close(fd);
    EXPECT_EQ(attribute(at("f"), "user.device"), "cuda:1");
    ASSERT_TRUE(moved("host"));
    EXPECT_TRUE(read_file(at("f")) == bytes);
}

// On host the mapping is the object's own pages. On a GPU msync() writes changes back, and opening the file again
// refreshes the mapping from the GPU.
TEST_P(MountMemory, MappedFiles) {
    ASSERT_TRUE(write_file(at("f"), pattern(2 * kMiB, 5)));
    auto object = client_.open("f", {.write = true});
    ASSERT_TRUE(object) << object.error().message;
    int fd = open(at("f").c_str(), O_RDWR);
    auto* mapped = static_cast<char*>(mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(mapped, MAP_FAILED);
    const bool own_pages = GetParam() == Way::passthrough;
    EXPECT_EQ(std::string(mapped, 2 * kMiB), pattern(2 * kMiB, 5));
    memcpy(mapped + 70'000, "through the mapping", 19);
    if (!own_pages) {
        ASSERT_EQ(msync(mapped, 2 * kMiB, MS_SYNC), 0);
    }
    EXPECT_EQ(bytes_of(*object).substr(70'000, 19), "through the mapping");
    ASSERT_TRUE(object->copy_in(std::string("by the GPU"), kMiB));
    if (!own_pages) close(open(at("f").c_str(), O_RDONLY));
    EXPECT_EQ(std::string(mapped + kMiB, 10), "by the GPU");
    auto* own = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    ASSERT_NE(own, MAP_FAILED);
    own[0] = static_cast<char>(~own[0]);
    EXPECT_EQ(read_file(at("f"))[0], pattern(1, 5)[0]);
    munmap(own, 4096);
    munmap(mapped, 2 * kMiB);
    close(fd);
    EXPECT_EQ(read_file(at("f")), bytes_of(*object));
}

TEST_P(MountMemory, AReadSeesWhatWasJustWrittenToTheMemory) {
    ASSERT_TRUE(write_file(at("f"), std::string(kMiB, 'a')));
    auto object = client_.open("f", {.write = true});
    ASSERT_TRUE(object);
    int fd = open(at("f").c_str(), O_RDONLY);
    for (uint8_t round = 0; round < 50; ++round) {
        ASSERT_TRUE(object->fill(round));
        unsigned char seen[2] = {};
        ASSERT_EQ(pread(fd, seen, 1, 0), 1);
        ASSERT_EQ(pread(fd, seen + 1, 1, kMiB - 1), 1);
        ASSERT_EQ(seen[0], round);
        ASSERT_EQ(seen[1], round);
    }
    close(fd);
}

INSTANTIATE_TEST_SUITE_P(Ways, MountMemory, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gshm::core::test

// Listing a directory while its files were renamed never ended: a renamed file came again at the end of the listing.
// Handles of files (name_to_handle_at) gave ESTALE as soon as the kernel had forgotten the inode.
#include <dirent.h>
#include <set>
#include <sys/mount.h>
#include <sys/stat.h>

#include "mount/survival_fixture.h"
#include "support/fuse_rig.h"

namespace gshm::core::test {
namespace {

struct Listed {
    std::string name;
    uint64_t offset = 0;
};

class Listing : public ::testing::Test {
protected:
    // One page of a listing; empty: its end.
    std::vector<Listed> page(uint64_t offset, uint32_t bytes) {
        fuse_read_in in = {};
        in.offset = offset;
        in.size = bytes;
        auto answer = rig_.ask(RigRequest(FUSE_READDIR, Files::kRoot).add(in));
        EXPECT_TRUE(answer.is_good()) << answer.error;
        std::vector<Listed> entries;
        for (size_t at = 0; at < answer.body.size();) {
            const auto entry = answer.part<fuse_dirent>(at);
            entries.push_back({answer.body.substr(at + FUSE_NAME_OFFSET, entry.namelen), entry.off});
            at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen);
        }
        return entries;
    }
    // All names, with a change after each page. Ends after `most` entries.
    std::multiset<std::string> list(const std::function<void(const Listed& last)>& change, size_t most = 1000) {
        std::multiset<std::string> names;
        uint64_t offset = 0;
        while (names.size() < most) {
            auto entries = page(offset, 100);
            if (entries.empty()) break;
            for (const auto& entry : entries) names.insert(entry.name);
            offset = entries.back().offset;
            change(entries.back());
        }
        return names;
    }
    static std::string name(int i) { return "file-" + std::to_string(100 + i); }
    void make(int count) {
        for (int i = 0; i < count; ++i) {
            auto made = rig_.create(name(i));
            ASSERT_TRUE(made.is_good());
            rig_.release(made.node(), made.open_out().file);
        }
    }
    FuseRig rig_;
};

TEST_F(Listing, EndsWhileFilesAreMadeAndRemoved) {
    make(20);
    int made = 20;
    auto names = list([&](const Listed&) {
        for (int i = 0; i < 5; ++i) ASSERT_TRUE(rig_.create(name(made++)).is_good());
        for (int i = made - 10; i < made - 5 && i >= 20; ++i) ASSERT_TRUE(rig_.unlink(name(i)).is_good());
    });
    EXPECT_EQ(names.size(), 22u);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(names.count(name(i)), 1u) << name(i);
}

TEST_F(Listing, HasARenamedFileOnce) {
    make(20);
    int renamed = 0;
    auto names = list([&](const Listed& last) {
        if (last.name.starts_with(".")) return;
        ASSERT_TRUE(rig_.rename(last.name, "renamed-" + std::to_string(renamed++)).is_good());
    });
    EXPECT_EQ(names.size(), 22u) << "no name twice, and none for ever";
}

// A name that is replaced is always there, so every listing has it.
TEST_F(Listing, HasEveryReplacedName) {
    make(20);
    int next = 0;
    auto names = list([&](const Listed&) {
        for (int i = 0; i < 20; ++i) {
            const std::string fresh = "fresh-" + std::to_string(next++);
            ASSERT_TRUE(rig_.create(fresh).is_good());
            ASSERT_TRUE(rig_.rename(fresh, name(i)).is_good());
        }
    });
    for (int i = 0; i < 20; ++i) EXPECT_EQ(names.count(name(i)), 1u) << name(i);
}

TEST_F(Listing, ContinuesAtTheNextDaemonAndWithoutItsLastEntry) {
    make(20);
    int round = 0;
    auto names = list([&](const Listed& last) {
        if (!last.name.starts_with(".")) ASSERT_TRUE(rig_.unlink(last.name).is_good());
        if (++round % 2 == 0) rig_.restart();
        ASSERT_TRUE(rig_.create("new-" + std::to_string(round)).is_good());
    });
    for (int i = 0; i < 20; ++i) EXPECT_EQ(names.count(name(i)), 1u) << name(i);
    EXPECT_LT(names.size(), 60u);
}

class MountListing : public SurvivalTest {
protected:
    void start_it() { ASSERT_TRUE(start_mounted(GetParam())) << log(); }
    std::string as_user(const std::function<std::string()>& body) { return run_as(user(), body); }
};

TEST_P(MountListing, EndsWhileFilesAreRenamed) {
    start_it();
    EXPECT_EQ(as_user([&]() -> std::string {
                  constexpr int kFiles = 3000;
                  const std::string folder = at("d");
                  if (mkdir(folder.c_str(), 0755) != 0) return failed("mkdir");
                  for (int i = 0; i < kFiles; ++i) {
                      if (mknod((folder + "/some-longer-name-" + std::to_string(i)).c_str(), S_IFREG | 0644, 0) != 0)
                          return failed("mknod");
                  }
                  DIR* listing = opendir(folder.c_str());
                  size_t count = 0;
                  long middle = 0;
                  std::string after_middle;
                  while (const dirent* entry = readdir(listing)) {
                      if (++count > 2 * kFiles) return "the listing does not end";
                      if (entry->d_name[0] == '.') continue;
                      const std::string name = folder + "/" + entry->d_name;
                      if (rename(name.c_str(), (name + "+").c_str()) != 0) return failed("rename");
                  }
                  if (count != kFiles + 2) return "there were " + std::to_string(count);
                  // New entries come after a rewind, and a position stays valid.
                  if (mkdir((folder + "/new").c_str(), 0755) != 0) return failed("mkdir new");
                  rewinddir(listing);
                  bool has_new = false;
                  for (count = 0; const dirent* entry = readdir(listing); ++count) {
                      has_new |= std::string_view(entry->d_name) == "new";
                      if (count == 1500) middle = telldir(listing);
                      if (count == 1501) after_middle = entry->d_name;
                  }
                  if (!has_new || count != kFiles + 3) return "after the rewind there were " + std::to_string(count);
                  seekdir(listing, middle);
                  const dirent* entry = readdir(listing);
                  if (entry == nullptr || entry->d_name != after_middle) return "the position leads elsewhere";
                  closedir(listing);
                  return "";
              }),
              "");
}

INSTANTIATE_TEST_SUITE_P(Ways, MountListing, ::testing::Values(Way::passthrough, Way::user), way_of);

class FileHandles : public SurvivalTest {
protected:
    struct Handle {
        alignas(file_handle) char bytes[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
        file_handle* get() { return reinterpret_cast<file_handle*>(bytes); }
    };
    Handle handle_of(const std::string& path) {
        Handle handle;
        handle.get()->handle_bytes = MAX_HANDLE_SZ;
        int mount_id = 0;
        EXPECT_EQ(name_to_handle_at(AT_FDCWD, path.c_str(), handle.get(), &mount_id, 0), 0) << strerror(errno);
        return handle;
    }
    // -errno if it fails.
    int open_handle(Handle& handle, int flags = O_RDONLY) {
        const int at_mount = open(mount().c_str(), O_RDONLY | O_DIRECTORY);
        const int fd = open_by_handle_at(at_mount, handle.get(), flags);
        const int code = errno;
        close(at_mount);
        return fd >= 0 ? fd : -code;
    }
    static std::string read_all(int fd) {
        char text[100];
        const ssize_t got = pread(fd, text, sizeof text, 0);
        close(fd);
        return got < 0 ? strerror(errno) : std::string(text, static_cast<size_t>(got));
    }
    // The kernel forgets all inodes.
    void mount_anew() {
        ASSERT_EQ(run_cli({"umount"}).exit_code, 0);
        kill();
        ASSERT_TRUE(again({mount()})) << log();
    }
};

TEST_P(FileHandles, AreValidAsLongAsTheFileExists) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    ASSERT_EQ(mkdir(at("d").c_str(), 0755), 0);
    ASSERT_EQ(mkdir(at("d/sub").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("d/sub/f"), "bytes", O_CREAT));
    ASSERT_TRUE(write_file(at("removed"), "other", O_CREAT));
    auto file = handle_of(at("d/sub/f"));
    auto folder = handle_of(at("d/sub"));
    auto removed = handle_of(at("removed"));
    auto root = handle_of(mount());
    for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        EXPECT_EQ(read_all(open_handle(file)), "bytes");
        const int opened = open_handle(folder, O_RDONLY | O_DIRECTORY);
        ASSERT_GE(opened, 0) << strerror(-opened);
        EXPECT_EQ(read_all(openat(opened, "f", O_RDONLY)), "bytes");
        EXPECT_EQ(read_all(openat(opened, "../../removed", O_RDONLY)), "other")
            << "the folder is connected to the root";
        close(opened);
        const int top = open_handle(root, O_RDONLY | O_DIRECTORY);
        EXPECT_GE(top, 0);
        close(top);
        if (round == 0) {
            kill();
            ASSERT_TRUE(again()) << log();
        } else {
            mount_anew();
        }
    }
    // Renamed: the same file.
    ASSERT_EQ(rename(at("d/sub/f").c_str(), at("g").c_str()), 0);
    mount_anew();
    EXPECT_EQ(read_all(open_handle(file)), "bytes");
    ASSERT_EQ(unlink(at("removed").c_str()), 0);
    EXPECT_EQ(open_handle(removed), -ESTALE);
    mount_anew();
    EXPECT_EQ(open_handle(removed), -ESTALE);
    EXPECT_EQ(run_as(kNobody,
                     [&]() -> std::string {
                         const int fd = open_handle(file);
                         return fd == -EPERM ? "" : "it gives " + std::to_string(fd);
                     }),
              "")
        << "the rights of directories hold";
}

TEST_P(FileHandles, OfAnotherStoreAreStale) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    ASSERT_TRUE(write_file(at("f"), "bytes", O_CREAT));
    auto handle = handle_of(at("f"));
    struct stat before = {};
    ASSERT_EQ(stat(at("f").c_str(), &before), 0);
    kill();
    ASSERT_TRUE(again({mount(), "--discard"})) << log();
    ASSERT_TRUE(write_file(at("f"), "others", O_CREAT));
    struct stat after = {};
    ASSERT_EQ(stat(at("f").c_str(), &after), 0);
    ASSERT_EQ(before.st_ino, after.st_ino) << "otherwise this test shows nothing";
    EXPECT_EQ(open_handle(handle), -ESTALE);
}

INSTANTIATE_TEST_SUITE_P(Ways, FileHandles, ::testing::Values(Way::passthrough, Way::through, Way::cuda), way_of);

}  // namespace
}  // namespace gshm::core::test

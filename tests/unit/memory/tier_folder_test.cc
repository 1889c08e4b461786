// The folder of a tier: what is written comes back, damage is found, nothing is half there, and nobody else's folder is
// used.
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>

#include "support/tier_rig.h"

namespace gshm::core {
namespace {

class TierFolderTest : public test::TierTest {
protected:
    // Changes one byte of a file.
    static void damage(const std::string& path, uint64_t at) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(at));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte ^ 1));
        ASSERT_TRUE(file.good()) << path << " at " << at;
    }
    std::unordered_map<uint64_t, std::string> kept() {
        std::unordered_map<uint64_t, std::string> all;
        folder_->kept([&](uint64_t number, const std::string& facts) { all[number] = facts; });
        return all;
    }
};

TEST_F(TierFolderTest, BytesComeBack) {
    for (const int level : {0, 1}) {
        spec_.compression_level = level;
        open();
        for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{4097},
                                     kChunk - 1, kChunk, kChunk + 1, 2 * kChunk - 1, 2 * kChunk, 37 * kChunk + 12345}) {
            const auto number = write(bytes, bytes);
            ASSERT_TRUE(number) << number.error().message;
            EXPECT_EQ(read_back(*number, bytes, bytes), "") << bytes;
            EXPECT_EQ(std::filesystem::file_size(file(*number)), TierFolder::file_bytes(bytes));
        }
        EXPECT_EQ(folder_->used_bytes(), bytes_on_disk());
    }
}

TEST_F(TierFolderTest, ARangeOfAnExtentComesBackIntoARangeOfAnother) {
    open();
    const uint64_t bytes = kChunk + 1000;
    const auto from = extent(bytes, 5, 12345);
    const auto number = folder_->write(*from, 12345, bytes).value();
    auto to = device_.allocate(bytes + 777 + 10, {}).value();
    ASSERT_TRUE(to->fill(0, bytes + 787, 0xEE));
    ASSERT_TRUE(folder_->read(number, *to, 777, bytes));
    std::string text(bytes + 787, '\0');
    ASSERT_TRUE(to->copy_out(0, std::as_writable_bytes(std::span(text))));
    EXPECT_EQ(text.substr(777, bytes), test::pattern(bytes, 5));
    EXPECT_EQ(text.substr(0, 777), std::string(777, '\xEE'));
    EXPECT_EQ(text.substr(777 + bytes), std::string(10, '\xEE'));
}

TEST_F(TierFolderTest, CompressibleBytesTakeLessOfTheDisk) {
    spec_.compression_level = 1;
    open();
    const uint64_t bytes = 8 * kChunk;
    auto from = device_.allocate(bytes, {}).value();
    ASSERT_TRUE(from->fill(0, bytes, 7));
    const auto number = folder_->write(*from, 0, bytes).value();
    EXPECT_LT(folder_->used_bytes(), bytes / 4);
    auto to = device_.allocate(bytes, {}).value();
    ASSERT_TRUE(folder_->read(number, *to, 0, bytes));
    std::string text(bytes, '\0');
    ASSERT_TRUE(to->copy_out(0, std::as_writable_bytes(std::span(text))));
    EXPECT_EQ(text, std::string(bytes, '\7'));
    const uint64_t used = folder_->used_bytes();
    open();
    EXPECT_EQ(folder_->used_bytes(), used);
}

TEST_F(TierFolderTest, RangesAreRead) {
    open();
    const uint64_t bytes = 3 * kChunk + 5000;
    const auto number = write(bytes, 3).value();
    const std::string all = test::pattern(bytes, 3);
    struct Range {
        uint64_t offset;
        uint64_t bytes;
    };
    for (const auto [offset, count] : {Range{0, 0}, Range{0, 1}, Range{0, bytes}, Range{kChunk - 1, 2}, Range{bytes, 0},
                                       Range{bytes - 1, 1}, Range{3 * kChunk, 5000}, Range{100, 2 * kChunk}}) {
        std::string text(count, '\0');
        const auto read = folder_->read_range(number, offset, std::as_writable_bytes(std::span(text)));
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(text, all.substr(offset, count)) << offset << " " << count;
    }
    std::string text(2, '\0');
    const auto into = std::as_writable_bytes(std::span(text));
    for (const uint64_t offset : {bytes - 1, bytes, bytes + 1, 9 * kChunk, UINT64_MAX - 1, UINT64_MAX})
        EXPECT_EQ(folder_->read_range(number, offset, into).error().code, EINVAL) << offset;
}

TEST_F(TierFolderTest, EveryDamagedByteIsFound) {
    for (const int level : {0, 1}) {
        spec_.compression_level = level;
        open();
        const uint64_t bytes = kChunk + 100;
        const auto number = write(bytes, 9).value();
        const TierHead head{.size_bytes = bytes};
        std::vector<uint64_t> places;
        for (uint64_t at = 0; at < TierHead::header_offset(head.chunks()); at += 1 + at % 3) places.push_back(at);
        for (uint64_t chunk = 0; chunk < head.chunks(); ++chunk)
            for (const uint64_t at : {uint64_t{0}, uint64_t{99}}) places.push_back(head.chunk_offset(chunk) + at);
        for (const uint64_t at : places) {
            damage(file(number), at);
            const std::string said = read_back(number, bytes, 9);
            EXPECT_TRUE(said.starts_with("5: ") && said.contains(file(number))) << at << ": " << said;
            damage(file(number), at);
        }
        EXPECT_EQ(read_back(number, bytes, 9), "");
        EXPECT_EQ(folder_->failure(), "") << "the disk itself has not failed";
        damage(file(number), head.chunk_offset(1) + 5);
        std::string text(10, '\0');
        const auto into = std::as_writable_bytes(std::span(text));
        EXPECT_TRUE(folder_->read_range(number, 0, into));
        const auto damaged = folder_->read_range(number, kChunk + 50, into);
        ASSERT_FALSE(damaged);
        EXPECT_EQ(damaged.error().code, EIO);
        EXPECT_NE(damaged.error().message.find("chunk 1 (bytes 4194304 to 4194404"), std::string::npos)
            << damaged.error().message;
    }
}

TEST_F(TierFolderTest, ATruncatedFileIsFound) {
    open();
    const uint64_t bytes = kChunk + 5000;
    const auto number = write(bytes, 9).value();
    const uint64_t whole = TierFolder::file_bytes(bytes);
    for (const uint64_t left :
         {whole - 4096, whole - kChunk, uint64_t{4096}, uint64_t{1000}, uint64_t{10}, uint64_t{0}}) {
        ASSERT_EQ(::truncate(file(number).c_str(), static_cast<off_t>(left)), 0);
        const std::string said = read_back(number, bytes, 9);
        EXPECT_TRUE(said.starts_with("5: ")) << left << ": " << said;
    }
}

TEST_F(TierFolderTest, FilesThatChangedPlacesAreFound) {
    open();
    const auto one = write(kChunk, 1).value();
    const auto two = write(kChunk, 2).value();
    std::filesystem::rename(file(one), file(one) + "x");
    std::filesystem::rename(file(two), file(one));
    std::filesystem::rename(file(one) + "x", file(two));
    EXPECT_TRUE(read_back(one, kChunk, 1).contains("another file"));
    EXPECT_TRUE(read_back(two, kChunk, 2).contains("another file"));
}

TEST_F(TierFolderTest, AnObjectOfAnotherSizeAndAMissingFileAreErrors) {
    open();
    const auto number = write(5000, 1).value();
    EXPECT_TRUE(read_back(number, 4999, 1).starts_with("5: "));
    EXPECT_TRUE(read_back(number + 1, 5000, 1).contains("is missing"));
    std::filesystem::remove(file(number));
    std::filesystem::create_symlink("/etc/passwd", file(number));
    EXPECT_TRUE(read_back(number, 5000, 1).contains("no regular file"));
    std::filesystem::remove(file(number));
    ASSERT_EQ(::mkfifo(file(number).c_str(), 0600), 0);
    EXPECT_TRUE(read_back(number, 5000, 1).contains("no regular file"));
    EXPECT_EQ(folder_->failure(), "");
}

TEST_F(TierFolderTest, TheCapacityIsExactForParallelWriters) {
    constexpr uint64_t kBytes = 60'000;
    constexpr uint64_t kFit = 50;
    spec_.capacity_bytes = kFit * TierFolder::file_bytes(kBytes) + TierFolder::file_bytes(kBytes) - 1;
    open();
    const auto from = extent(kBytes, 1);
    std::atomic<uint64_t> written = 0;
    std::atomic<uint64_t> refused = 0;
    std::atomic<bool> over = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
        threads.emplace_back([&] {
            for (int n = 0; n < 20; ++n) {
                const auto number = folder_->write(*from, 0, kBytes);
                number ? ++written : ++refused;
                if (!number && number.error().code != ENOSPC) over = true;
                if (folder_->used_bytes() > spec_.capacity_bytes) over = true;
                // Some make room again.
                if (number && n % 4 == 0) {
                    folder_->remove(*number);
                    --written;
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    folder_->wait_for_removals();
    EXPECT_FALSE(over);
    EXPECT_GT(refused, 0u);
    EXPECT_EQ(folder_->objects(), written);
    EXPECT_EQ(folder_->used_bytes(), written * TierFolder::file_bytes(kBytes));
    EXPECT_EQ(folder_->used_bytes(), bytes_on_disk());
    while (write(kBytes, 1)) ++written;
    EXPECT_EQ(folder_->objects(), kFit);
}

TEST_F(TierFolderTest, FreeBytesAreWhatALargestObjectTakes) {
    for (const uint64_t capacity : {uint64_t{1'000'000}, uint64_t{8192}, 3 * kChunk, 3 * kChunk + 4097}) {
        spec_.capacity_bytes = capacity;
        open();
        const uint64_t free = folder_->free_bytes();
        EXPECT_EQ(write(free + 4096, 1).error().code, ENOSPC);
        const auto number = write(free, 1);
        ASSERT_TRUE(number) << capacity << " " << free << " " << number.error().message;
        EXPECT_EQ(folder_->free_bytes(), 0u);
        folder_->remove(*number);
        folder_->wait_for_removals();
        EXPECT_EQ(folder_->free_bytes(), free);
    }
    spec_.capacity_bytes = 4095;
    open();
    EXPECT_EQ(folder_->free_bytes(), 0u);
}

TEST_F(TierFolderTest, ACapacityCanChange) {
    open();
    const auto number = write(100'000, 1).value();
    folder_->set_capacity(1000);
    EXPECT_EQ(write(1, 1).error().code, ENOSPC);
    EXPECT_EQ(read_back(number, 100'000, 1), "");
    folder_->remove(number);
    folder_->set_capacity(8192);
    EXPECT_TRUE(write(1, 1));
}

TEST_F(TierFolderTest, ALaterGshmdHasTheNamedFilesAndRemovesTheRest) {
    open();
    const auto one = write(5000, 1).value();
    const auto two = write(9000, 2).value();
    const auto three = write(0, 3).value();
    std::ofstream(spec_.path + "/00000000000000ff.part") << "of a killed gshmd";
    std::ofstream(spec_.path + "/notes") << "of the user";
    open();
    EXPECT_EQ(folder_->objects(), 3u);
    const uint64_t unknown = three + 1000;
    EXPECT_EQ(folder_->begin({one, three, unknown}), std::vector{unknown});
    folder_->wait_for_removals();
    EXPECT_EQ(read_back(one, 5000, 1), "");
    EXPECT_EQ(read_back(three, 0, 3), "");
    EXPECT_FALSE(std::filesystem::exists(file(two)));
    EXPECT_FALSE(std::filesystem::exists(spec_.path + "/00000000000000ff.part"));
    EXPECT_TRUE(std::filesystem::exists(spec_.path + "/notes"));
    EXPECT_EQ(folder_->used_bytes(), TierFolder::file_bytes(5000) + TierFolder::file_bytes(0));
    EXPECT_GT(write(1, 1).value(), three) << "numbers are not used again";
}

TEST_F(TierFolderTest, ANumberIsNeverUsedAgain) {
    open();
    const auto last = write(1, 1).value();
    folder_->remove(last);
    open();
    EXPECT_TRUE(folder_->begin({}).empty());
    EXPECT_GT(write(1, 1).value(), last);
}

TEST_F(TierFolderTest, ACheckOrTheEndOfGshmdStopsAWriteAndARead) {
    open();
    const uint64_t bytes = 40 * kChunk;
    const auto from = extent(bytes, 1);
    std::atomic<int> calls = 0;
    const auto fifth = [&]() -> Status {
        if (++calls == 5) return fail(EBUSY, "somebody opened it");
        return {};
    };
    EXPECT_EQ(folder_->write(*from, 0, bytes, fifth).error().code, EBUSY);
    EXPECT_LT(calls, 40);
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(folder_->used_bytes(), 0u);
    const auto number = folder_->write(*from, 0, bytes).value();
    auto to = device_.allocate(bytes, {}).value();
    calls = 0;
    EXPECT_EQ(folder_->read(number, *to, 0, bytes, fifth).error().code, EBUSY);
    const auto ends = [&]() -> Status {
        folder_->stop();
        return {};
    };
    EXPECT_EQ(folder_->write(*from, 0, bytes, ends).error().code, ECANCELED);
    EXPECT_EQ(folder_->read(number, *to, 0, bytes).error().code, ECANCELED);
    EXPECT_EQ(files().size(), 1u);
    EXPECT_EQ(folder_->failure(), "");
}

TEST_F(TierFolderTest, ADeviceErrorIsNotTheTiersFailure) {
    open();
    const auto small = device_.allocate(100, {}).value();
    EXPECT_EQ(folder_->write(*small, 0, 1000).error().code, EINVAL);
    EXPECT_EQ(folder_->failure(), "");
    EXPECT_TRUE(files().empty());
    const auto number = write(1000, 1).value();
    EXPECT_EQ(folder_->read(number, *small, 0, 1000).error().code, EINVAL);
    EXPECT_EQ(folder_->failure(), "");
}

TEST_F(TierFolderTest, ManyReadersAndWritersAtOnce) {
    open();
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 6; ++i) {
        threads.emplace_back([this, i] {
            for (uint64_t n = 0; n < 12; ++n) {
                const uint64_t bytes = (n % 3) * kChunk + n * 1111 * i;
                const auto number = write(bytes, i * 100 + n);
                ASSERT_TRUE(number) << number.error().message;
                EXPECT_EQ(read_back(*number, bytes, i * 100 + n), "");
                folder_->remove(*number);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    folder_->wait_for_removals();
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(folder_->used_bytes(), 0u);
}

// ---- the folder itself ----

TEST_F(TierFolderTest, IsMadeForItsOwnerOnly) {
    ::umask(0);
    open();
    struct stat status = {};
    ASSERT_EQ(::stat(spec_.path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
    const auto number = write(1, 1).value();
    ASSERT_EQ(::stat(file(number).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    ::umask(022);
}

TEST_F(TierFolderTest, HasOneGshmd) {
    open();
    std::string said;
    EXPECT_EQ(open_error(&said), EBUSY);
    EXPECT_TRUE(said.contains("another gshmd")) << said;
    folder_.reset();
    EXPECT_EQ(open_error(), 0);
}

TEST_F(TierFolderTest, WaitsForAGshmdThatIsEnding) {
    open();
    std::atomic<bool> waits = false;
    std::thread ends([&] {
        while (!waits) std::this_thread::yield();
        folder_.reset();
    });
    const auto opened = TierFolder::open(spec_, kInstance, [&](const std::string&) { waits = true; });
    ends.join();
    EXPECT_TRUE(opened);
    EXPECT_TRUE(waits);
}

TEST_F(TierFolderTest, TheFolderOfAnotherIsRefused) {
    std::string said;
    spec_.path = "relative";
    EXPECT_EQ(open_error(), EINVAL);
    spec_.path = root_ + "/none/tier";
    EXPECT_EQ(open_error(&said), ENOENT);
    EXPECT_TRUE(said.contains("mounted?")) << said;
    spec_.path = root_ + "/tier";
    std::ofstream(spec_.path) << "a file";
    EXPECT_EQ(open_error(), ENOTDIR);
    std::filesystem::remove(spec_.path);
    std::filesystem::create_directory(root_ + "/elsewhere");
    std::filesystem::create_symlink("elsewhere", spec_.path);
    for (const char* end : {"", "/", "//"}) {
        spec_.path = root_ + "/tier" + end;
        EXPECT_EQ(open_error(), ENOTDIR) << spec_.path;
    }
    EXPECT_TRUE(std::filesystem::is_empty(root_ + "/elsewhere"));
    spec_.path = root_ + "/elsewhere";
    for (const mode_t mode : {0770, 0707, 0722}) {
        ::chmod(spec_.path.c_str(), mode);
        EXPECT_EQ(open_error(&said), EPERM) << said;
        EXPECT_TRUE(said.contains("chmod go-w")) << said;
    }
    ::chmod(spec_.path.c_str(), 0755);
    std::ofstream(spec_.path + "/thesis.tex") << "work of years";
    EXPECT_EQ(open_error(&said), ENOTEMPTY);
    EXPECT_TRUE(said.contains("thesis.tex")) << said;
    std::filesystem::remove(spec_.path + "/thesis.tex");
    std::filesystem::create_directory(spec_.path + "/lost+found");
    EXPECT_EQ(open_error(&said), 0) << said;
}

TEST_F(TierFolderTest, AnotherUserMayNotOwnItOrWhatIsAbove) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    std::string said;
    std::filesystem::create_directory(spec_.path);
    ASSERT_EQ(::chown(spec_.path.c_str(), 4321, 4321), 0);
    EXPECT_EQ(open_error(&said), EPERM);
    EXPECT_TRUE(said.contains("uid 4321")) << said;
    ASSERT_EQ(::chown(spec_.path.c_str(), 0, 0), 0);
    ASSERT_EQ(::chown(root_.c_str(), 4321, 4321), 0);
    EXPECT_EQ(open_error(&said), EPERM);
    EXPECT_TRUE(said.contains("uid 4321")) << said;
    ASSERT_EQ(::chown(root_.c_str(), 0, 0), 0);
    ASSERT_EQ(::chmod(root_.c_str(), 0777), 0);
    EXPECT_EQ(open_error(&said), EPERM);
    ASSERT_EQ(::chmod(root_.c_str(), 01777), 0);
    EXPECT_EQ(open_error(&said), 0) << said;
}

TEST_F(TierFolderTest, AWrongMarkerIsRefused) {
    open();
    folder_.reset();
    const std::string path = spec_.path + "/" + kTierMarkerName;
    std::string marker;
    std::getline(std::ifstream(path), marker, '\0');
    std::string said;
    for (const char* wrong : {"", "a", "gshm-tier 2\ntier 1\nmachine \n", "gshm-tier 1\ntier 0\nmachine \n",
                              "gshm-tier 1\ntier x\nmachine \n", "gshm-tier 1\n", "gshm-tier 1\ntier 1\n"}) {
        std::ofstream(path) << wrong;
        EXPECT_EQ(open_error(&said), EBADMSG) << wrong;
        EXPECT_TRUE(said.contains(path)) << said;
    }
    // Without a known id of this machine every marker is accepted.
    if (marker.contains("machine \n")) GTEST_SKIP() << "the machine has no id";
    const auto at = marker.find("machine ") + 8;
    std::ofstream(path) << marker.substr(0, at) << "0123" << marker.substr(at + 4);
    EXPECT_EQ(open_error(&said), EXDEV);
    EXPECT_TRUE(said.contains("another machine")) << said;
    std::ofstream(path) << marker;
    EXPECT_EQ(open_error(&said), 0) << said;
}

TEST_F(TierFolderTest, AFolderThatVanishesIsAFailureAndHarmsNothingElse) {
    open();
    const auto number = write(5000, 1).value();
    std::filesystem::remove_all(spec_.path);
    const auto refused = write(5000, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EIO);
    EXPECT_TRUE(folder_->failure().contains("folder was removed")) << folder_->failure();
    EXPECT_TRUE(read_back(number, 5000, 1).starts_with("5: "));
    EXPECT_EQ(folder_->free_bytes(), 0u);
    folder_->remove(number);
    folder_->wait_for_removals();
    EXPECT_EQ(folder_->used_bytes(), 0u);
    // A later gshmd begins anew, with numbers that it has not used.
    open();
    EXPECT_GT(write(5000, 1).value(), number);
}

// ---- keep ----

TEST_F(TierFolderTest, KeptObjectsAreFoundByALaterInstance) {
    spec_.keep = true;
    open();
    const auto one = write(5000, 1).value();
    const auto two = write(kChunk + 1, 2).value();
    const auto bare = write(10, 3).value();
    const auto gone = write(10, 4).value();
    folder_->set_facts(one, "first");
    folder_->set_facts(two, std::string(100'000, 'x'));
    folder_->set_facts(gone, "removed later");
    folder_->set_facts(one, "one");
    ASSERT_TRUE(folder_->wait_for_facts());
    folder_->remove(gone);
    // The same instance has its catalog: what it does not name was about to go.
    open();
    EXPECT_TRUE(folder_->begin({one, two, bare}).empty());
    EXPECT_TRUE(kept().empty());
    open(kInstance + 1);
    EXPECT_TRUE(folder_->begin({}).empty());
    EXPECT_EQ(kept(), (std::unordered_map<uint64_t, std::string>{{one, "one"}, {two, std::string(100'000, 'x')}}));
    EXPECT_EQ(read_back(one, 5000, 1), "");
    folder_->wait_for_removals();
    EXPECT_FALSE(std::filesystem::exists(file(bare))) << "it had no facts";
    // Not adopted yet: still there for the next try.
    open(kInstance + 2);
    EXPECT_TRUE(folder_->begin({}).empty());
    EXPECT_EQ(kept().size(), 2u);
    folder_->set_facts(one, "adopted");
    ASSERT_TRUE(folder_->wait_for_facts());
    EXPECT_EQ(kept().size(), 1u);
    // Removed in the new instance, and its file is left by a kill.
    open(kInstance + 2);
    EXPECT_TRUE(folder_->begin({}).empty());
    folder_->wait_for_removals();
    EXPECT_FALSE(std::filesystem::exists(file(one)));
    EXPECT_EQ(kept().size(), 1u);
    EXPECT_EQ(read_back(two, kChunk + 1, 2), "");
}

TEST_F(TierFolderTest, KeptObjectsAreNotRemovedBecauseKeepWasForgotten) {
    spec_.keep = true;
    open();
    const auto number = write(5000, 1).value();
    folder_->set_facts(number, "facts");
    ASSERT_TRUE(folder_->wait_for_facts());
    folder_.reset();
    spec_.keep = false;
    // Also with its catalog: its end would remove the object.
    spec_.text = "/tier:512M:keep";
    std::string said;
    EXPECT_EQ(open_error(&said), ENOTEMPTY);
    EXPECT_TRUE(said.contains("`--tier /tier:512M:keep`")) << said;
    spec_.keep = true;
    open();
    folder_->begin({number});
    folder_->set_facts(number, "facts");
    ASSERT_TRUE(folder_->wait_for_facts());
    folder_.reset();
    spec_.keep = false;
    const auto refused = TierFolder::open(spec_, kInstance + 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOTEMPTY);
    EXPECT_TRUE(refused.error().message.contains(":keep")) << refused.error().message;
    EXPECT_TRUE(std::filesystem::exists(file(number)));
}

TEST_F(TierFolderTest, DamagedFactsLoseOnlyTheirOwnObject) {
    spec_.keep = true;
    open();
    std::vector<uint64_t> numbers;
    for (int i = 0; i < 5; ++i) {
        numbers.push_back(write(1, 1).value());
        folder_->set_facts(numbers.back(), "facts of " + std::to_string(i));
        ASSERT_TRUE(folder_->wait_for_facts());
    }
    folder_.reset();
    const uint64_t record = TierFactsHeader{.bytes = 10}.record_bytes();
    damage(spec_.path + "/" + kTierFactsName, record + TierFactsHeader::kBytes);
    damage(spec_.path + "/" + kTierFactsName, 3 * record);
    open(kInstance + 1);
    EXPECT_TRUE(folder_->begin({}).empty());
    EXPECT_EQ(kept(), (std::unordered_map<uint64_t, std::string>{
                          {numbers[0], "facts of 0"}, {numbers[2], "facts of 2"}, {numbers[4], "facts of 4"}}));
    folder_->wait_for_removals();
    EXPECT_EQ(files().size(), 3u);
    folder_.reset();
    // The end is missing: a write that a kill or the loss of power has cut.
    std::filesystem::resize_file(spec_.path + "/" + kTierFactsName, 3 * record - 8);
    open(kInstance + 2);
    EXPECT_TRUE(folder_->begin({}).empty());
    EXPECT_EQ(kept().size(), 2u);
}

TEST_F(TierFolderTest, TheFileOfFactsDoesNotGrow) {
    spec_.keep = true;
    open();
    const auto number = write(1, 1).value();
    for (int i = 0; i < 100; ++i) {
        folder_->set_facts(number, std::string(100'000, static_cast<char>(i)));
        ASSERT_TRUE(folder_->wait_for_facts());
    }
    const uint64_t bytes = std::filesystem::file_size(spec_.path + "/" + kTierFactsName);
    EXPECT_LT(bytes, 3'000'000u);
    EXPECT_EQ(folder_->used_bytes(), bytes + bytes_on_disk());
    open(kInstance + 1);
    folder_->begin({});
    EXPECT_EQ(kept().at(number), std::string(100'000, static_cast<char>(99)));
}

TEST_F(TierFolderTest, FactsWithoutRoomWaitForIt) {
    spec_.keep = true;
    spec_.capacity_bytes = 2 * TierFolder::file_bytes(1) + 1000;
    open();
    const auto one = write(1, 1).value();
    const auto two = write(1, 1).value();
    folder_->set_facts(one, std::string(2000, 'a'));
    EXPECT_EQ(folder_->wait_for_facts().error().code, ENOSPC);
    EXPECT_EQ(folder_->failure(), "");
    folder_->remove(two);
    EXPECT_TRUE(folder_->wait_for_facts());
    EXPECT_TRUE(folder_->wait_for_facts());
    EXPECT_LE(folder_->used_bytes(), spec_.capacity_bytes);
    open(kInstance + 1);
    folder_->begin({});
    EXPECT_EQ(kept().at(one), std::string(2000, 'a'));
}

}  // namespace
}  // namespace gshm::core

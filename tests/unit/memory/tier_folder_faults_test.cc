// The folder of a tier on a disk that fails, and after a kill: at every single call, nothing half-made is accepted and
// nothing is left behind.
#include <fstream>
#include <sys/wait.h>

#include "support/tier_rig.h"

namespace gshm::core {
namespace {

class TierFolderFaultsTest : public test::TierTest {
protected:
    using Disk = test::FaultyDisk;
    static constexpr uint64_t kBytes = kChunk + 100;
    static constexpr uint64_t kMostCalls = 100;
};

TEST_F(TierFolderFaultsTest, AWriteThatFailsAtAnyCallLeavesNothing) {
    for (const bool keep : {false, true}) {
        spec_.keep = keep;
        for (const int error : {EIO, ENOSPC, EROFS, EDQUOT, EMFILE}) {
            bool done = false;
            for (uint64_t n = 1; !done; ++n) {
                ASSERT_LT(n, kMostCalls);
                open();
                folder_->begin({});
                folder_->wait_for_removals();
                const uint64_t before = folder_->used_bytes();
                const auto other = write(5000, 8).value();
                disk_.arm(Disk::Kind::fail, n, 1, error);
                const auto number = write(kBytes, n);
                done = disk_.hits() == 0;
                disk_.disarm();
                SCOPED_TRACE("keep " + std::to_string(keep) + " error " + std::to_string(error) + " call " +
                             std::to_string(n));
                EXPECT_EQ(number.has_value(), done);
                EXPECT_EQ(read_back(other, 5000, 8), "");
                if (number) {
                    EXPECT_EQ(read_back(*number, kBytes, n), "");
                    continue;
                }
                const bool is_disk = error == EIO || error == EROFS;
                EXPECT_EQ(number.error().code, is_disk ? EIO : error);
                EXPECT_TRUE(number.error().message.contains(is_disk ? "has failed" : spec_.path))
                    << number.error().message;
                EXPECT_EQ(folder_->failure().empty(), !is_disk) << folder_->failure();
                EXPECT_EQ(files().size(), 1u);
                EXPECT_EQ(folder_->used_bytes(), before + TierFolder::file_bytes(5000));
                EXPECT_EQ(write(kBytes, n).has_value(), !is_disk) << "a failed tier takes no further objects";
            }
        }
    }
}

TEST_F(TierFolderFaultsTest, ADiskThatFailsOnAndOnLeavesNothingForALaterGshmd) {
    bool done = false;
    for (uint64_t n = 1; !done; ++n) {
        ASSERT_LT(n, kMostCalls);
        open();
        folder_->begin({});
        folder_->wait_for_removals();
        disk_.arm(Disk::Kind::fail, n, UINT64_MAX, EIO);
        const auto number = write(kBytes, n);
        done = disk_.hits() == 0;
        disk_.disarm();
        EXPECT_EQ(number.has_value(), done);
        if (number) continue;
        EXPECT_EQ(number.error().code, EIO);
        EXPECT_GE(folder_->used_bytes(), bytes_on_disk()) << "what cannot be removed is counted";
        open();
        folder_->begin({});
        folder_->wait_for_removals();
        EXPECT_TRUE(files().empty());
    }
}

TEST_F(TierFolderFaultsTest, AReadThatFailsAtAnyCallReportsIt) {
    for (const int error : {EIO, ENOMEM, EMFILE}) {
        bool done = false;
        for (uint64_t n = 1; !done; ++n) {
            ASSERT_LT(n, kMostCalls);
            open();
            folder_->begin({});
            const auto number = write(kBytes, 6).value();
            disk_.arm(Disk::Kind::fail, n, 1, error);
            const std::string said = read_back(number, kBytes, 6);
            done = disk_.hits() == 0;
            disk_.disarm();
            EXPECT_EQ(said.empty(), done) << said;
            if (done) continue;
            EXPECT_TRUE(said.starts_with(std::to_string(error) + ": ")) << said;
            EXPECT_EQ(folder_->failure().empty(), error != EIO);
            EXPECT_EQ(read_back(number, kBytes, 6), "") << "it can still be read";
            EXPECT_EQ(folder_->write(*extent(1, 1), 0, 1).has_value(), error != EIO);
        }
    }
}

TEST_F(TierFolderFaultsTest, AStartThatFailsAtAnyCallCanBeRepeated) {
    for (const bool keep : {false, true}) {
        spec_.keep = keep;
        for (const bool fresh : {true, false}) {
            bool done = false;
            for (uint64_t n = 1; !done; ++n) {
                ASSERT_LT(n, kMostCalls);
                folder_.reset();
                std::filesystem::remove_all(spec_.path);
                uint64_t number = 0;
                if (!fresh) {
                    open();
                    number = write(kBytes, 6).value();
                    folder_->set_facts(number, "facts");
                    ASSERT_TRUE(folder_->wait_for_facts());
                    folder_.reset();
                }
                disk_.arm(Disk::Kind::fail, n, 1, EIO);
                (void)TierFolder::open(spec_, kInstance, {}, disk_);
                done = disk_.hits() == 0;
                disk_.disarm();
                open();
                if (!fresh) {
                    EXPECT_TRUE(folder_->begin({number}).empty());
                    EXPECT_EQ(read_back(number, kBytes, 6), "");
                }
                EXPECT_TRUE(write(1, 1));
            }
        }
    }
}

TEST_F(TierFolderFaultsTest, FactsThatFailAtAnyCallAreTheOldOrTheNewOnes) {
    spec_.keep = true;
    bool done = false;
    for (uint64_t n = 1; !done; ++n) {
        ASSERT_LT(n, kMostCalls);
        folder_.reset();
        std::filesystem::remove_all(spec_.path);
        open();
        const auto number = write(1, 1).value();
        const auto other = write(1, 1).value();
        // So many that the file is written anew.
        for (int i = 0; i < 12; ++i)
            folder_->set_facts(number, std::string(200'000, 'o')), (void)folder_->wait_for_facts();
        folder_->set_facts(other, "other");
        ASSERT_TRUE(folder_->wait_for_facts());
        disk_.arm(Disk::Kind::fail, n, 1, n % 2 == 0 ? EIO : ENOSPC);
        folder_->set_facts(number, "new");
        (void)folder_->wait_for_facts();
        folder_->set_facts(number, "newer");
        const auto last = folder_->wait_for_facts();
        done = disk_.hits() == 0;
        disk_.disarm();
        open(kInstance + 1);
        folder_->begin({});
        std::unordered_map<uint64_t, std::string> found;
        folder_->kept([&](uint64_t kept, const std::string& facts) { found[kept] = facts; });
        EXPECT_EQ(found[other], "other") << n;
        EXPECT_TRUE(found[number] == "newer" || (!last && (found[number] == "new" || found[number].size() == 200'000)))
            << n << " " << found[number].substr(0, 10);
    }
}

// The child does `body` and is killed at its n-th call of the disk. False: it came to its end.
template <typename Body>
bool killed_at(test::FaultyDisk& disk, uint64_t n, Body&& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        disk.arm(test::FaultyDisk::Kind::end, n, 1, 0);
        body();
        _exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    return WEXITSTATUS(status) == 9;
}

TEST_F(TierFolderFaultsTest, AKillAtAnyCallOfAWriteLeavesAWholeFileOrNone) {
    for (const bool keep : {false, true}) {
        spec_.keep = keep;
        bool killed = true;
        for (uint64_t n = 1; killed; ++n) {
            ASSERT_LT(n, kMostCalls);
            killed = killed_at(disk_, n, [&] {
                auto opened = TierFolder::open(spec_, kInstance, {}, disk_);
                if (!opened) _exit(1);
                (*opened)->begin({});
                const auto number = (*opened)->write(*extent(kBytes, 6), 0, kBytes);
                if (!number) _exit(2);
                (*opened)->set_facts(*number, "facts");
                (void)(*opened)->wait_for_facts();
            });
            open();
            std::vector<uint64_t> whole;
            for (const auto& name : files()) {
                const uint64_t number = tier_file_number(name);
                ASSERT_NE(number, 0u) << name << " is half a file";
                EXPECT_EQ(read_back(number, kBytes, 6), "");
                whole.push_back(number);
            }
            EXPECT_LE(whole.size(), 1u);
            // As the catalog of that gshmd, which did not name it.
            folder_->begin({});
            folder_->wait_for_removals();
            EXPECT_TRUE(files().empty());
            EXPECT_EQ(folder_->used_bytes(), keep ? std::filesystem::file_size(spec_.path + "/facts") : 0u);
            folder_.reset();
        }
    }
}

TEST_F(TierFolderFaultsTest, AKillAtAnyCallWhileFactsChangeKeepsTheObject) {
    spec_.keep = true;
    bool killed = true;
    for (uint64_t n = 1; killed; ++n) {
        ASSERT_LT(n, kMostCalls);
        folder_.reset();
        std::filesystem::remove_all(spec_.path);
        open();
        const auto number = write(kBytes, 6).value();
        folder_->set_facts(number, std::string(1'200'000, 'o'));
        ASSERT_TRUE(folder_->wait_for_facts());
        folder_.reset();
        killed = killed_at(disk_, n, [&] {
            auto opened = TierFolder::open(spec_, kInstance, {}, disk_);
            if (!opened) _exit(1);
            (*opened)->begin({number});
            for (int i = 0; i < 3; ++i) {  // also writes the file anew
                (*opened)->set_facts(number, std::string(1'200'000, 'n'));
                (void)(*opened)->wait_for_facts();
            }
        });
        open(kInstance + 1);
        folder_->begin({});
        std::string found;
        folder_->kept([&](uint64_t kept, const std::string& facts) { found = kept == number ? facts : "?"; });
        EXPECT_TRUE(found == std::string(1'200'000, 'o') || found == std::string(1'200'000, 'n')) << n;
        EXPECT_EQ(read_back(number, kBytes, 6), "");
    }
}

TEST_F(TierFolderFaultsTest, AFileThatCannotBeRemovedStaysCounted) {
    open();
    const auto number = write(5000, 1).value();
    disk_.arm(Disk::Kind::fail, 1, 1, EIO);
    folder_->remove(number);
    folder_->wait_for_removals();
    disk_.disarm();
    EXPECT_EQ(folder_->used_bytes(), TierFolder::file_bytes(5000));
    EXPECT_EQ(folder_->objects(), 0u);
    EXPECT_TRUE(folder_->failure().contains("cannot be removed")) << folder_->failure();
    open();
    folder_->begin({});
    folder_->wait_for_removals();
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(folder_->used_bytes(), 0u);
}

TEST_F(TierFolderFaultsTest, ASlowDiskDelaysNoState) {
    open();
    const auto number = write(5000, 1).value();
    std::atomic<bool> released = false;
    std::atomic<bool> waits = false;
    disk_.on_call = [&](std::string_view call) {
        if (call != "remove" && call != "write") return;
        waits = true;
        while (!released) std::this_thread::yield();
    };
    std::thread writer([&] { EXPECT_TRUE(write(5000, 2)); });
    while (!waits) std::this_thread::yield();
    folder_->remove(number);
    EXPECT_EQ(folder_->objects(), 0u);
    EXPECT_EQ(folder_->used_bytes(), 2 * TierFolder::file_bytes(5000));
    EXPECT_GT(folder_->free_bytes(), 0u);
    EXPECT_EQ(folder_->failure(), "");
    released = true;
    writer.join();
    folder_->wait_for_removals();
    EXPECT_EQ(folder_->objects(), 1u);
}

}  // namespace
}  // namespace gshm::core

// The state of a gshmd with an older catalog was refused, although its memory was there.
#include "catalog/migrations.h"
#include "integration/library_fixture.h"
#include "support/former_gshmd.h"

namespace gshm::core::test {
namespace {

class ReadsObjects : public LibraryTest {
protected:
    std::string read_object(const std::string& name) {
        Client client = connect();
        gshm_object* opened = nullptr;
        if (gshm_open(client.get(), name.c_str(), GSHM_NO_MAP, &opened) != 0) return gshm_last_error();
        Object object(opened);
        std::string bytes(gshm_size(opened), '\0');
        return gshm_copy_out(opened, 0, bytes.data(), bytes.size()) == 0 ? bytes : gshm_last_error();
    }
};

class FormerState : public ReadsObjects {
protected:
    void SetUp() override { ASSERT_NO_FATAL_FAILURE(FormerGshmd::leave_version_1(dir())); }
    void expect_all() {
        const auto bytes = FormerGshmd::bytes_of_extent;
        EXPECT_EQ(read_object("models/a"), bytes(1, 8893));
        EXPECT_EQ(read_object("models/big"), bytes(2, 3000000));
        EXPECT_EQ(read_object("open/kept"), bytes(3, 5000));
        EXPECT_EQ(read_object("open/alone"), bytes(4, 4096));
        EXPECT_EQ(read_object("host/dir/sub/hard"), bytes(5, 6));
        EXPECT_EQ(read_object("host/dir/empty"), "");
        EXPECT_EQ(read_object("host/dir/sparse"), bytes(7, 100000));
        EXPECT_EQ(run_cli({"attr", "models/a", "colour"}).out, "red");
    }
    int version() const { return version_in_file(dir() + "/gshm.db"); }
};

TEST_F(FormerState, IsTakenUp) {
    ASSERT_EQ(version(), 1);
    ASSERT_TRUE(start({})) << log();
    expect_all();
    EXPECT_EQ(version(), newest_version(migrations()));
    EXPECT_FALSE(std::filesystem::exists(dir() + "/gshm.leases"));
    // Ids are not used again, as the earlier gshmd has promised.
    Client client = connect();
    Object object = create(client.get(), "new", 100, "host", GSHM_KEEP);
    EXPECT_GE(stat(client.get(), "new").id, 4097u);
    kill();
    ASSERT_TRUE(start({})) << log();
    expect_all();
    EXPECT_EQ(stat(connect().get(), "new").size_bytes, 100u);
}

TEST_F(FormerState, CanBeSalvagedAfterwards) {
    if (geteuid() != 0) GTEST_SKIP() << "not root: lost+found is for root only";
    ASSERT_TRUE(start({})) << log();
    kill();
    std::ofstream(dir() + "/gshm.db") << "damaged";
    std::filesystem::remove(dir() + "/gshm.db-wal");
    ASSERT_TRUE(start({"--salvage", "--device", "host:64M"})) << log();
    const std::string found = run_cli({"ls", "-lR", "lost+found"}).out;
    EXPECT_NE(found.find("2.9M"), std::string::npos) << found << log();
}

TEST_F(FormerState, ThatIsDamagedIsRefusedAndUnchanged) {
    std::filesystem::resize_file(dir() + "/gshm.db", 16384);
    EXPECT_FALSE(start({}));
    EXPECT_NE(log().find("cannot be taken up"), std::string::npos) << log();
    EXPECT_NE(log().find("has 8 extents"), std::string::npos) << log();
    std::filesystem::copy_file(std::string(FormerGshmd::kVersion1) + "/gshm.db", dir() + "/gshm.db",
                               std::filesystem::copy_options::overwrite_existing);
    ASSERT_TRUE(start({})) << log();
    expect_all();
}

TEST_F(FormerState, IsNotSalvaged) {
    EXPECT_FALSE(start({"--salvage"}));
    EXPECT_NE(log().find("without --salvage"), std::string::npos) << log();
    ASSERT_TRUE(start({})) << log();
    expect_all();
}

// Catalog, journal and ledger of 0.1, and a keeper with its memory.
class StateOf01 : public ReadsObjects {};

TEST_F(StateOf01, IsTakenUp) {
    ASSERT_NO_FATAL_FAILURE(FormerGshmd::leave_0_1(dir()));
    ASSERT_TRUE(start({})) << log();
    const auto bytes = FormerGshmd::bytes_of_extent;
    EXPECT_EQ(read_object("models/a"), bytes(1, 8893));
    EXPECT_EQ(read_object("models/big"), bytes(2, 5000000));
    EXPECT_EQ(read_object("open/kept"), bytes(3, 5000));
    EXPECT_EQ(read_object("open/alone"), bytes(4, 4096));
    EXPECT_EQ(read_object("open/journaled"), bytes(5, 6000));
    EXPECT_EQ(run_cli({"attr", "models/a", "colour"}).out, "red");
    // As the ledger of 0.1 says: ids are not used again, also those of objects that are gone.
    Client client = connect();
    Object object = create(client.get(), "new", 100, "host", GSHM_KEEP);
    EXPECT_GT(stat(client.get(), "new").id, stat(client.get(), "open/journaled").id);
}

// A format that the next gshmd does not read was noticed after the running one had ended.
class TakeoverFormat : public LibraryTest {
protected:
    void SetUp() override {
        ASSERT_TRUE(start({"--device", "host:64M"})) << log();
        client_ = connect();
        ASSERT_TRUE(create(client_.get(), "a", 5000, "host", GSHM_KEEP));
    }
    void expect_refused(const std::string& word) {
        const pid_t before = pid();
        ChildProcess next;
        ASSERT_TRUE(next.spawn({bin("gshmd"), "--dir", dir(), "-f", "--takeover"}));
        auto refused = next.finish();
        EXPECT_EQ(refused.exit_code, 1);
        EXPECT_NE(refused.err.find(word), std::string::npos) << refused.err;
        EXPECT_TRUE(running());
        EXPECT_EQ(pid(), before);
        EXPECT_EQ(stat(client_.get(), "a").size_bytes, 5000u);
    }
};

TEST_F(TakeoverFormat, OfTheCatalogIsCheckedFirst) {
    // In page 1 of the file, and in its copies in the log.
    auto set_version = [](std::fstream& file, std::streamoff page) {
        file.seekp(page + 60).write("\0\0\0\x63", 4).flush();
    };
    std::fstream file(dir() + "/gshm.db", std::ios::in | std::ios::out | std::ios::binary);
    set_version(file, 0);
    std::fstream log(dir() + "/gshm.db-wal", std::ios::in | std::ios::out | std::ios::binary);
    const auto bytes = static_cast<std::streamoff>(std::filesystem::file_size(dir() + "/gshm.db-wal"));
    for (std::streamoff frame = 32; frame + 24 + 4096 <= bytes; frame += 24 + 4096) {
        char number[4] = {};
        log.seekg(frame).read(number, 4);
        if (number[3] == 1 && number[2] == 0) set_version(log, frame + 24);
    }
    expect_refused("format 99");
}

TEST_F(TakeoverFormat, OfTheLedgerIsCheckedFirst) {
    constexpr uint64_t kLedger = uint64_t{1} << 63 | 4;
    auto other = UniqueFd::adopt(memfd_create("ledger", MFD_CLOEXEC));
    const uint64_t magic = 0x3965'7065'656b'7367;  // format 9
    ASSERT_EQ(write(other.get(), &magic, sizeof magic), 8);
    tell_keeper(dir(), keeper::Kind::put, kLedger, other.get());
    expect_refused("a newer gshmd");
}

}  // namespace
}  // namespace gshm::core::test

// The catalog is in the runtime folder. A user could fill that with attributes. Then nothing could be written: no name could
// be removed, and no gshmd started.
#include <filesystem>
#include <fstream>
#include <sys/mount.h>
#include <sys/stat.h>

#include "integration/library_fixture.h"
#include "support/as_user.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

constexpr uid_t kUser = 65534;
constexpr uid_t kOther = 65533;

class FullFolder : public LibraryTest {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small tmpfs";
        ASSERT_EQ(::mkdir(dir().c_str(), 0755), 0);
        if (::mount("tmpfs", dir().c_str(), "tmpfs", 0, "size=64M,mode=0755") != 0) {
            GTEST_SKIP() << "cannot mount a tmpfs: " << strerror(errno);
        }
        ASSERT_TRUE(start()) << log();
    }
    void TearDown() override {
        stop();
        kill_keeper();
        ::umount2(dir().c_str(), MNT_DETACH);
    }
    gshm::Client connect_as(uid_t uid) {
        AsUser user(uid);
        auto client = gshm::Client::connect({.dir = dir(), .timeout = std::chrono::seconds(10)});
        EXPECT_TRUE(client) << client.error().message;
        return std::move(client).value();
    }
    // The error of creating an object with a long attribute; 0: none.
    static int create(const gshm::Client& client, const std::string& name, size_t bytes = 60'000) {
        gshm::CreateSpec spec{.name = name, .size_bytes = 1, .keep = true, .map = false};
        if (bytes > 0) spec.attributes.push_back({"a", std::string(bytes, 'x')});
        auto made = client.create(spec);
        return made ? 0 : made.error().code;
    }
    static int create_until_refused(const gshm::Client& client, const std::string& prefix, size_t* ret_made) {
        for (*ret_made = 0; *ret_made < 2000; ++*ret_made) {
            if (int code = create(client, prefix + std::to_string(*ret_made)); code != 0) return code;
        }
        return 0;
    }
    std::string filler() const { return dir() + "/filler"; }
    // As another program would.
    void fill() {
        std::ofstream file(filler(), std::ios::app);
        const std::string block(4096, 'x');
        while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {}
    }
    uint64_t catalog_bytes() const {
        uint64_t bytes = 0;
        for (const char* name : {"/gshm.db", "/gshm.db-wal"}) {
            std::error_code ignored;
            const auto size = std::filesystem::file_size(dir() + name, ignored);
            if (!ignored) bytes += size;
        }
        return bytes;
    }
};

TEST_F(FullFolder, OneUserCannotFillIt) {
    auto client = connect_as(kUser);
    size_t made = 0;
    EXPECT_EQ(create_until_refused(client, "x", &made), EDQUOT);
    EXPECT_GT(made * 60'000, 6u << 20);
    EXPECT_LT(made * 60'000, 20u << 20);
    for (uid_t uid : {uid_t{0}, kOther}) {
        auto other = connect_as(uid);
        const auto name = "other" + std::to_string(uid);
        EXPECT_EQ(create(other, name), 0);
        EXPECT_TRUE(other.unlink(name));
    }
    // A restart counts the same.
    kill();
    ASSERT_TRUE(start()) << log();
    AsUser user(kUser);  // connects again
    EXPECT_EQ(create(client, "y"), EDQUOT);
    for (size_t i = 0; i < made; ++i) ASSERT_TRUE(client.unlink("x" + std::to_string(i)));
    EXPECT_EQ(create(client, "y"), 0);
    EXPECT_TRUE(client.unlink("y"));
    // The file gets small again, with the next changes.
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(create(client, "z", 0), 0);
        EXPECT_TRUE(client.unlink("z"));
        return catalog_bytes() < (17u << 20);
    })) << catalog_bytes();
}

TEST_F(FullFolder, NamesCanBeRemovedAndGshmdStarts) {
    auto root = connect_as(0);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(create(root, "a" + std::to_string(i)), 0);
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(dir() + "/gshm.reserve"); }));
    fill();
    size_t made = 0;
    EXPECT_EQ(create_until_refused(root, "b", &made), ENOSPC);
    EXPECT_FALSE(std::filesystem::exists(dir() + "/gshm.reserve"));
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(root.unlink("a" + std::to_string(i))) << i;
    EXPECT_EQ(run_cli({"rm", "a50"}).err, "");
    auto user = connect_as(kUser);
    EXPECT_TRUE(user.ping());
    kill();
    ASSERT_TRUE(start()) << log();
    for (int i = 51; i < 60; ++i) EXPECT_TRUE(root.unlink("a" + std::to_string(i))) << i;
    EXPECT_TRUE(root.stat("a60"));
    EXPECT_FALSE(root.stat("a0"));
    ASSERT_EQ(::unlink(filler().c_str()), 0);
    EXPECT_TRUE(eventually([&] { return create(root, "c") == 0; }));
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(dir() + "/gshm.reserve"); }));
    EXPECT_EQ(stop(), 0);
    EXPECT_FALSE(std::filesystem::exists(dir() + "/gshm.reserve"));
}

TEST_F(FullFolder, GshmdStartsWithAFolderThatWasFilledMeanwhile) {
    auto root = connect_as(0);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(create(root, "a" + std::to_string(i)), 0);
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(dir() + "/gshm.reserve"); }));
    kill();
    fill();
    ASSERT_TRUE(start()) << log();
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(root.unlink("a" + std::to_string(i))) << i;
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
}

}  // namespace
}  // namespace gshm::core::test

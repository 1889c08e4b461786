// gshm_list_unlinked(): memory without a name, and its holders.
#include <set>

#include "library_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

class UnlinkedList : public LibraryTest {
protected:
    void SetUp() override {
        start_all();
        auto connected = gshm::Client::connect({.dir = dir()});
        ASSERT_TRUE(connected);
        asker_ = *std::move(connected);
    }
    uint64_t total(const std::vector<UnlinkedEntry>& entries, std::string_view where) {
        uint64_t bytes = 0;
        for (const auto& entry : entries) bytes += entry.info.device == where ? entry.info.size_bytes : 0;
        return bytes;
    }
    gshm::Client asker_;
};

TEST_F(UnlinkedList, NamesWhoHoldsWhat) {
    auto held = create(client_.get(), "models/old", 4096, "cuda:0", GSHM_KEEP);
    auto named = create(client_.get(), "named", 10, "host", GSHM_KEEP);
    auto unnamed = create(client_.get(), "wanted", 100, "host", GSHM_UNNAMED);
    ASSERT_EQ(gshm_unlink(client_.get(), "models/old"), 0);
    auto entries = asker_.unlinked();
    ASSERT_TRUE(entries) << entries.error().message;
    ASSERT_EQ(entries->size(), 2u);
    const auto& old = (*entries)[0];
    EXPECT_EQ(old.name, "models/old");
    EXPECT_EQ(old.info.id, gshm_id(held.get()));
    EXPECT_EQ(old.info.size_bytes, 4096u);
    EXPECT_STREQ(old.info.device, "cuda:0");
    EXPECT_FALSE(old.former());
    ASSERT_EQ(old.holders.size(), 1u);
    EXPECT_EQ(old.holders[0].pid, getpid());
    EXPECT_EQ(old.holders[0].leases, 1u);
    EXPECT_EQ(old.holders[0].writable, 1u);
    EXPECT_STRNE(old.holders[0].command, "");
    EXPECT_EQ((*entries)[1].name, "");
    EXPECT_EQ((*entries)[1].info.size_bytes, 100u);
    held.reset();
    unnamed.reset();
    ASSERT_EQ(gshm_ping(client_.get()), 0);
    EXPECT_EQ(asker_.unlinked()->size(), 0u);
}

TEST_F(UnlinkedList, ManyComeByPages) {
    constexpr size_t kObjects = 2500;
    std::vector<Object> held;
    std::set<std::string> expected;
    const std::string folder(200, 'f');
    for (size_t i = 0; i < kObjects; ++i) {
        std::string name = folder + "/" + folder + "/" + std::to_string(i);
        held.push_back(create(client_.get(), name.c_str(), 100 + i, "host", GSHM_NO_MAP | GSHM_KEEP));
        ASSERT_EQ(gshm_unlink(client_.get(), name.c_str()), 0);
        expected.insert(name);
    }
    auto entries = asker_.unlinked();
    ASSERT_TRUE(entries) << entries.error().message;
    std::set<std::string> listed;
    for (const auto& entry : *entries) {
        EXPECT_TRUE(listed.insert(entry.name).second);
        EXPECT_EQ(entry.holders.size(), 1u);
    }
    EXPECT_EQ(listed, expected);
    EXPECT_EQ(total(*entries, "host"), device(client_.get(), "host").unlinked_bytes);
}

TEST_F(UnlinkedList, OneObjectWithManyHolders) {
    constexpr size_t kClients = 1500;  // more than fit in a message
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < kClients + 200) GTEST_SKIP() << "too few descriptors allowed";
    create(client_.get(), "x", 10, "host", GSHM_KEEP);
    std::vector<Client> clients;
    std::vector<Object> objects;
    for (size_t i = 0; i < kClients; ++i) {
        clients.push_back(connect());
        objects.push_back(open(clients.back().get(), "x", GSHM_NO_MAP));
    }
    ASSERT_EQ(gshm_unlink(client_.get(), "x"), 0);
    auto entries = asker_.unlinked();
    ASSERT_TRUE(entries) << entries.error().message;
    ASSERT_EQ(entries->size(), 1u);
    EXPECT_EQ((*entries)[0].holders.size(), 1000u);
    EXPECT_EQ((*entries)[0].info.leases, kClients);
}

TEST_F(UnlinkedList, OthersSeeTheirOwn) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    auto secret = create(client_.get(), "secret", 1000, "host", GSHM_KEEP);
    auto open_to_all = create(client_.get(), "open", 2000, "host", GSHM_KEEP, 0666);
    int go[2];
    int said[2];
    ASSERT_EQ(pipe(go), 0);
    ASSERT_EQ(pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0) _exit(99);
        auto client = gshm::Client::connect({.dir = dir()});
        auto own = client->create({.name = "mine", .size_bytes = 3000, .device = "host", .keep = true});
        auto theirs = client->open("open");
        char byte = 0;
        if (!own || !theirs || !client->unlink("mine") || write(said[1], "x", 1) != 1 || ::read(go[0], &byte, 1) != 1) {
            _exit(1);
        }
        auto entries = client->unlinked();
        if (!entries || entries->size() != 2) _exit(2);
        for (const auto& entry : *entries) {
            bool is_own = entry.info.uid == 65534;
            if (entry.name != (is_own ? "mine" : "") || entry.holders.size() != 1) _exit(3);
            if (entry.holders[0].pid != getpid()) _exit(4);
        }
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(::read(said[0], &byte, 1), 1);
    ASSERT_EQ(gshm_unlink(client_.get(), "secret"), 0);
    ASSERT_EQ(gshm_unlink(client_.get(), "open"), 0);
    auto entries = asker_.unlinked();
    ASSERT_TRUE(entries);
    EXPECT_EQ(entries->size(), 3u);
    EXPECT_EQ(total(*entries, "host"), device(client_.get(), "host").unlinked_bytes);
    ASSERT_EQ(write(go[1], "x", 1), 1);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    for (int end : {go[0], go[1], said[0], said[1]}) close(end);
}

}  // namespace
}  // namespace gshm::core::test

// Exhausted resources: the reply has the reason, no object is lost, and requests succeed again when there are more.
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "faults/faults_fixture.h"
#include "support/eventually.h"

namespace gshm::core::test {
namespace {

class Exhausted : public FaultTest {
protected:
    // Puts the runtime folder on a separate file system.
    bool mount_small(const char* size) {
        mkdir(dir().c_str(), 0755);
        std::string options = std::string("size=") + size;
        return ::mount("tmpfs", dir().c_str(), "tmpfs", 0, (options + ",mode=0755").c_str()) == 0;
    }
    void fill_up() {
        int fd = open((dir() + "/ballast").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        std::string block(4096, 'x');
        while (write(fd, block.data(), block.size()) > 0) {}
        close(fd);
    }
    // Creates objects until the catalog's file, which has room in advance, is full too. Returns their number, with the
    // one that was refused.
    size_t create_until_full(gshm_client* client) {
        int code = 0;
        size_t made = 0;
        for (; code == 0 && made < 100'000; ++made) {
            Object object;
            code = create(client, "many/" + std::to_string(made), 100, "host", GSHM_KEEP | GSHM_NO_MAP, &object);
        }
        EXPECT_EQ(code, -ENOSPC) << gshm_last_error();
        return made;
    }
    void make_room() { std::filesystem::remove(dir() + "/ballast"); }
    // gshmd looks for space again after a while, and makes no names until then.
    void make_room_and_wait(gshm_client* client) {
        make_room();
        int code = -ENOSPC;
        EXPECT_TRUE(eventually([&] {
            Object object;
            code = create(client, "room", 100, "host", GSHM_NO_MAP, &object);
            return code != -ENOSPC;
        }));
        EXPECT_EQ(code, 0) << gshm_last_error();
        EXPECT_EQ(gshm_unlink(client, "room"), 0) << gshm_last_error();
    }
    void TearDown() override {
        stop();
        kill_keeper();
        umount2(dir().c_str(), MNT_DETACH);
    }
};

// A runtime folder without room, in which gshmd has refused to create an object.
class FullCatalog : public Exhausted {
protected:
    void SetUp() override {
        if (auto missing = missing_for(Way::through); !missing.empty()) GTEST_SKIP() << missing;
        ASSERT_TRUE(mount_small("8M"));
        start_all();
        client_ = connect();
        fill_up();
        made_ = create_until_full(client_.get());
    }
    void check_many() {
        for (size_t i = 0; i + 1 < made_; ++i) EXPECT_TRUE(exists(client_.get(), "many/" + std::to_string(i))) << i;
    }
    // gshmd has ended. All recorded objects are there afterwards.
    void check_next_start() {
        make_room();
        ASSERT_TRUE(start_again()) << log();
        check_kept();
        check_serves();
        check_many();
        remove_all("many");
    }

    Client client_;
    size_t made_ = 0;  // with the one that was refused
};

TEST_F(FullCatalog, RefusesNewNames) {
    Object object;
    EXPECT_EQ(create(client_.get(), "many/more", 100, "host", GSHM_KEEP | GSHM_NO_MAP, &object), -ENOSPC);
    check_alive();
    check_kept();
    kill();
    check_next_start();
}

// An end that keeps everything cannot record the last changes, and loses nothing of the earlier ones.
TEST_F(FullCatalog, AtAnEndThatKeeps) {
    Object object;
    EXPECT_EQ(create(client_.get(), "many/more", 100, "host", GSHM_KEEP | GSHM_NO_MAP, &object), -ENOSPC);
    run_cli({"shutdown", "--keep"});
    EXPECT_EQ(wait_for_end(std::chrono::seconds(60)), 0) << log();
    check_next_start();
}

TEST_F(FullCatalog, AtATakeover) {
    Object object;
    EXPECT_EQ(create(client_.get(), "many/more", 100, "host", GSHM_KEEP | GSHM_NO_MAP, &object), -ENOSPC);
    ChildProcess next;
    ASSERT_TRUE(next.spawn({bin("gshmd"), "--dir", dir(), "-f", "--takeover"}, environment()));
    // It takes over, or the old one goes on.
    gshm_daemon_info info = {.struct_size = sizeof info};
    ASSERT_EQ(gshm_daemon(client_.get(), &info), 0) << gshm_last_error();
    make_room();
    check_kept();
    check_many();
    next.signal(SIGKILL);
    next.wait(std::chrono::seconds(60));
    kill();
    check_next_start();
}

// An element that fails for a reason of its own must not hide that the others are not recorded.
TEST_F(FullCatalog, ForABatch) {
    gshm_create_spec specs[3] = {GSHM_CREATE_SPEC_INIT, GSHM_CREATE_SPEC_INIT, GSHM_CREATE_SPEC_INIT};
    const char* names[] = {"many/x", "many/0", "many/y"};  // the second one exists
    for (int i = 0; i < 3; ++i) {
        specs[i].name = names[i];
        specs[i].size_bytes = 100;
        specs[i].device = "host";
        specs[i].flags = GSHM_KEEP | GSHM_NO_MAP;
    }
    gshm_object* objects[3] = {};
    int statuses[3] = {};
    EXPECT_NE(gshm_create_batch(client_.get(), specs, 3, objects, statuses), 0);
    EXPECT_EQ(statuses[0], -ENOSPC);
    EXPECT_NE(statuses[1], 0);
    EXPECT_EQ(statuses[2], -ENOSPC);
    for (gshm_object* object : objects) gshm_close(object);
    make_room_and_wait(client_.get());
    check_serves();
    remove_all("many");
}

TEST_F(Exhausted, CatalogHasRoomAgain) {
    if (auto missing = missing_for(Way::through); !missing.empty()) GTEST_SKIP() << missing;
    ASSERT_TRUE(mount_small("8M"));
    start_all();
    check_serves();
    auto client = connect();
    auto before = settled();
    fill_up();
    create_until_full(client.get());
    make_room_and_wait(client.get());
    check_serves();
    // The last object was made, as its reply said, and is recorded by now.
    remove_all("many");
    check_no_more_than(before);
    check_restart();
}

TEST_F(Exhausted, LedgerWithoutRoom) {
    if (auto missing = missing_for(Way::through); !missing.empty()) GTEST_SKIP() << missing;
    ASSERT_TRUE(mount_small("8M"));
    start_all();
    auto client = connect();
    fill_up();
    std::vector<Object> held;
    int code = 0;
    while (code == 0 && held.size() < 100'000) {
        gshm_object* object = nullptr;
        code = gshm_open(client.get(), "kept/small-host", GSHM_NO_MAP, &object);
        if (code == 0) held.emplace_back(object);
    }
    // If all opens of a process share one lease, the ledger does not run out of room.
    if (code != 0) {
        EXPECT_EQ(code, -ENOSPC) << gshm_last_error();
    }
    check_alive();
    check_kept();
    held.clear();
    make_room_and_wait(client.get());
    check_serves();
    check_restart();
}

TEST_F(Exhausted, Descriptors) {
    start_all();
    check_serves();
    auto before = settled();
    auto client = connect();
    rlimit old = {};
    size_t used = before.descriptors;
    rlimit few = {used + 12, used + 12};
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, nullptr, &old), 0);
    few.rlim_max = old.rlim_max;
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &few, nullptr), 0);
    for (const auto& device : kDevices) {
        int code = 0;
        for (int i = 0; i < 40 && code == 0; ++i) {
            Object object;
            code = create(client.get(), "many/" + device + std::to_string(i), 50'000, device,
                          GSHM_DEDICATED | GSHM_KEEP | GSHM_NO_MAP, &object);
        }
        // Host files are opened on demand.
        const bool on_demand = device == "host" && geteuid() == 0;
        EXPECT_EQ(code, on_demand ? 0 : -EMFILE) << gshm_last_error();
        if (!on_demand) {
            EXPECT_NE(std::string(gshm_last_error()).find("descriptors"), std::string::npos) << gshm_last_error();
        }
        EXPECT_EQ(gshm_ping(client.get()), 0);
    }
    // New clients get the error too.
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    std::string folder = dir();
    options.dir = folder.c_str();
    std::vector<Client> clients;
    int code = 0;
    for (int i = 0; i < 20 && code == 0; ++i) {
        gshm_client* another = nullptr;
        code = gshm_connect(&options, &another);
        clients.emplace_back(another);
    }
    EXPECT_EQ(code, -EMFILE) << gshm_last_error();
    clients.clear();
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &old, nullptr), 0);
    check_alive();
    check_kept();
    remove_all("many");
    check_serves();
    client.reset();
    check_no_more_than(before);
    check_restart();
}

TEST_F(Exhausted, Devices) {
    start_all();
    check_serves();
    auto before = settled();
    auto client = connect();
    for (const auto& device : kDevices) {
        int code = 0;
        uint64_t bytes = uint64_t{64} << 20;
        for (int i = 0; bytes > 1000 && i < 4000; ++i) {
            Object object;
            code = create(client.get(), "many/" + device + std::to_string(i), bytes, device, GSHM_KEEP | GSHM_NO_MAP,
                          &object);
            if (code == 0) continue;
            EXPECT_EQ(code, -ENOSPC) << gshm_last_error();
            bytes /= 2;
        }
        EXPECT_EQ(code, -ENOSPC);
        EXPECT_GT(std::string(gshm_last_error()).size(), 5u);
    }
    check_alive();
    check_kept();
    remove_all("many");
    client.reset();
    check_serves();
    check_no_more_than(before);
    check_restart();
}

}  // namespace
}  // namespace gshm::core::test

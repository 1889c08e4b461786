// gshmd is killed, replaced and prevented from starting under load, with many objects.
#include "integration/survival_fixture.h"
#include "keeper/message.h"

namespace gshm::core::test {
namespace {

class SurvivalUnderLoad : public LibrarySurvivalTest {
protected:
    static std::string failed(const char* what) { return std::string(what) + ": " + gshm_last_error(); }

    // All operations of a client in sequence; none of them may fail.
    static std::string use_once(gshm_client* client, const std::string& folder, const char* device, uint64_t round) {
        const std::string a = folder + "/a" + std::to_string(round), b = folder + "/b";
        // CUDA does not survive a fork: GPU objects are used without a mapping.
        auto wanted = spec(a.c_str(), 1000 + round % 3 * kMiB, device, strcmp(device, "host") == 0 ? 0 : GSHM_NO_MAP);
        gshm_object* made = nullptr;
        if (gshm_create(client, &wanted, &made) != 0) return failed("create");
        Object object(made);
        const std::string bytes = pattern(gshm_size(made), round);
        if (gshm_copy_in(made, 0, bytes.data(), bytes.size()) != 0) return failed("copy_in");
        if (gshm_set_attribute(client, a.c_str(), "round", &round, sizeof round) != 0) return failed("set_attribute");
        if (gshm_seal(made) != 0) return failed("seal");
        object.reset();
        if (gshm_open(client, a.c_str(), GSHM_NO_MAP, &made) != 0) return failed("open");
        object.reset(made);
        if (!holds(made, round)) return failed("other bytes");
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        if (gshm_stat(client, a.c_str(), &info) != 0) return failed("stat");
        if (info.state != GSHM_STATE_SEALED || info.leases != 1) return "leases: " + std::to_string(info.leases);
        if (gshm_rename(client, a.c_str(), b.c_str(), GSHM_REPLACE) != 0) return failed("rename");
        if (round % 2 == 0 && gshm_unlink(client, b.c_str()) != 0) return failed("unlink");
        return {};
    }
    void add_users(Workers& workers) {
        for (int i = 0; i < 3; ++i) {
            workers.add([this, i](Workers::Self& self) -> std::string {
                client_.release();
                client_ = connect(kPatience);
                const std::string folder = "w" + std::to_string(i);
                for (uint64_t round = 0; self.goes_on(); ++round) {
                    auto wrong = use_once(client_.get(), folder, i == 0 ? "cuda:1" : "host", round);
                    if (!wrong.empty()) return wrong + " (round " + std::to_string(round) + ")";
                }
                gshm_unlink(client_.get(), (folder + "/b").c_str());
                client_.reset();
                return {};
            });
        }
    }
};

TEST_F(SurvivalUnderLoad, TakenOverTenTimesAndThenKilled) {
    make("stays", 3 * kMiB, "cuda:0", 1);
    Object held = open(client_.get(), "stays");
    Workers workers;
    add_users(workers);
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(workers.wait_for_rounds(2)) << workers.finish() << log();
        ASSERT_TRUE(take_over({}, daemon_env())) << log();
    }
    EXPECT_TRUE(workers.wait_for_rounds(2));
    EXPECT_EQ(workers.finish(), "");
    kill_it();
    EXPECT_TRUE(has("stays", 1));
    EXPECT_EQ(stat(client_.get(), "stays").leases, 1u);
    EXPECT_EQ(total(client_.get()).object_bytes, 3 * kMiB);
    EXPECT_EQ(total(client_.get()).unlinked_bytes, 0u);
}

TEST_F(SurvivalUnderLoad, TenThousandObjects) {
    constexpr size_t kObjects = 10'000;
    std::vector<std::string> names;
    for (size_t i = 0; i < kObjects; ++i) names.push_back("d" + std::to_string(i % 97) + "/o" + std::to_string(i));
    for (size_t i = 0; i < kObjects; i += 500) {
        std::vector<gshm_create_spec> specs;
        for (size_t j = i; j < i + 500; ++j)
            specs.push_back(spec(names[j].c_str(), 64 + j % 3000, j % 2 ? "host" : "cuda:0"));
        std::vector<gshm_object*> objects(500);
        std::vector<int> status(500);
        ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), 500, objects.data(), status.data()), 0);
        for (size_t j = 0; j < 500; ++j) put(objects[j], i + j);
        ASSERT_EQ(gshm_seal_batch(objects.data(), 500, status.data()), 0) << gshm_last_error();
        gshm_close_batch(objects.data(), 500);
    }
    const auto before = total(client_.get());
    kill_it();
    EXPECT_EQ(daemon_info().objects, kObjects);
    EXPECT_EQ(total(client_.get()).object_bytes, before.object_bytes);
    EXPECT_EQ(total(client_.get()).used_bytes, before.used_bytes);
    for (size_t i = 0; i < kObjects; i += 7) ASSERT_TRUE(has(names[i], i)) << names[i];
}

TEST_F(SurvivalUnderLoad, TheKeeperIsKilledThenTheDaemon) {
    for (int i = 0; i < 300; ++i) make("o" + std::to_string(i), 5000, "host", 1, true, GSHM_DEDICATED);
    make("gpu", 3 * kMiB, "cuda:0", 2);
    for (int round = 0; round < 3; ++round) {
        const pid_t keeper = keeper_pid();
        ASSERT_GT(keeper, 0);
        ASSERT_EQ(::kill(keeper, SIGKILL), 0);
        ASSERT_TRUE(eventually([&] {
            const pid_t now = keeper_pid();
            return now > 0 && now != keeper;
        }));
        make("after" + std::to_string(round), 5000, "host", 3);
        kill_it();
        EXPECT_EQ(daemon_info().objects, 302u + static_cast<uint64_t>(round));
        for (int i = 0; i < 300; ++i) ASSERT_TRUE(has("o" + std::to_string(i), 1)) << i;
        EXPECT_TRUE(has("gpu", 2));
        EXPECT_TRUE(has("after" + std::to_string(round), 3));
    }
}

TEST_F(SurvivalUnderLoad, TheKeeperServesItsUserAlone) {
    make("a", 5000, "host", 1);
    const auto list = [&]() -> int {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::snprintf(address.sun_path, sizeof address.sun_path, "%s/keeper.sock", dir().c_str());
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 2;
        const struct {
            keeper::Kind kind;
            uint32_t count;
        } question = {keeper::Kind::list, 0};
        if (::send(fd, &question, sizeof question, MSG_NOSIGNAL) < 0) return 2;
        keeper::Message message = {};
        return ::recv(fd, &message, sizeof message, 0) > 0 ? 0 : 2;
    };
    EXPECT_EQ(in_child(list), 0);
    EXPECT_EQ(in_child(list, 65534), 2);
    EXPECT_TRUE(has("a", 1));
}

TEST_F(SurvivalUnderLoad, ASecondDaemonIsRefused) {
    make("a", 5000, "host", 1);
    ChildProcess second;
    ASSERT_TRUE(second.spawn({bin("gshmd"), "--dir", dir(), "-f"}, daemon_env()));
    const RunResult refused = second.finish();
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("already running"), std::string::npos) << refused.err;
    EXPECT_TRUE(has("a", 1));
    kill_it();
    EXPECT_TRUE(has("a", 1));
}

TEST_F(SurvivalUnderLoad, AStartThatFailsLosesNothing) {
    make("host", 5000, "host", 1);
    make("gpu", 3 * kMiB, "cuda:1", 2);
    Object draft = make("draft", kMiB, "cuda:1", 3, false);
    kill();
    for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
             {"--device", "host:256M"}, {"--device", "cuda:9"}, {"/dev/null/nowhere"}, {"--device", "cuda:0"}}) {
        EXPECT_FALSE(again(wrong)) << wrong.back();
        EXPECT_FALSE(running());
        EXPECT_GT(keeper_pid(), 0) << wrong.back();
    }
    EXPECT_NE(log().find("there are objects on cuda:1"), std::string::npos) << log();
    ASSERT_TRUE(again({"--device", "host:256M", "--device", "cuda"})) << log();
    EXPECT_TRUE(has("host", 1));
    EXPECT_TRUE(has("gpu", 2));
    EXPECT_EQ(gshm_seal(draft.get()), 0) << gshm_last_error();
    EXPECT_TRUE(has("draft", 3));
}

TEST_F(SurvivalUnderLoad, DevicesInAnotherOrder) {
    make("gpu", 3 * kMiB, "cuda:1", 2);
    make("host", 5000, "host", 1);
    kill();
    ASSERT_TRUE(again({"--device", "cuda:1", "--device", "host:256M", "--device", "cuda:0"})) << log();
    EXPECT_STREQ(stat(client_.get(), "gpu").device, "cuda:1");
    EXPECT_STREQ(stat(client_.get(), "host").device, "host");
    EXPECT_TRUE(has("gpu", 2));
    EXPECT_TRUE(has("host", 1));
    make("first", 5000, nullptr, 3);
    EXPECT_STREQ(stat(client_.get(), "first").device, "cuda:1");
}

TEST_F(SurvivalUnderLoad, KilledAgainWhileItStarts) {
    for (int i = 0; i < 200; ++i) make("o" + std::to_string(i), 3000, i % 2 ? "host" : "cuda:0", 1);
    Object draft = make("draft", kMiB, "cuda:1", 3, false);
    Object held = open(client_.get(), "o7");
    ASSERT_EQ(gshm_unlink(client_.get(), "o7"), 0);
    Random random(5);
    for (int round = 0; round < 4; ++round) {
        kill();
        for (int i = 0; i < 10; ++i) {
            ASSERT_TRUE(begin_to_start({}, daemon_env()));
            std::this_thread::sleep_for(std::chrono::microseconds(random.below(60'000)));
            kill();
        }
        ASSERT_TRUE(again()) << log();
        EXPECT_EQ(daemon_info().objects, 201u);
        for (int i = 0; i < 200; ++i) {
            if (i == 7) continue;
            ASSERT_TRUE(has("o" + std::to_string(i), 1)) << i;
        }
        EXPECT_TRUE(holds(held.get(), 1));
        EXPECT_EQ(total(client_.get()).unlinked_bytes, 3000u);
        EXPECT_EQ(stat(client_.get(), "draft").leases, 1u);
    }
    EXPECT_EQ(gshm_seal(draft.get()), 0) << gshm_last_error();
    held.reset();
    EXPECT_TRUE(eventually([&] { return total(client_.get()).unlinked_bytes == 0; }));
}

TEST_F(SurvivalUnderLoad, HandlesForOthers) {
    make("gpu", 3 * kMiB, "cuda:0", 1);
    gshm_handle_info before = {};
    before.struct_size = sizeof before;
    uint8_t fabric[GSHM_FABRIC_HANDLE_BYTES];
    {
        Object object = open(client_.get(), "gpu");
        ASSERT_EQ(gshm_export_fabric(object.get(), fabric, &before), 0) << gshm_last_error();
    }
    kill_it();
    Object object = open(client_.get(), "gpu");
    gshm_handle_info after = {};
    after.struct_size = sizeof after;
    // Only the process that allocated the memory can create a handle, and handles end with that process.
    EXPECT_EQ(gshm_export_fabric(object.get(), fabric, &after), -EBUSY);
    EXPECT_NE(std::string(gshm_last_error()).find("has ended"), std::string::npos) << gshm_last_error();
    gshm_object* imported = nullptr;
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, &after), 0) << gshm_last_error();
    ASSERT_EQ(gshm_import_fd("cuda:0", fd, &after, 0, &imported), 0) << gshm_last_error();
    EXPECT_TRUE(holds(imported, 1));
    gshm_close(imported);
    ::close(fd);
}

TEST_F(SurvivalUnderLoad, DiscardBeginsAnew) {
    make("a", 5000, "host", 1);
    Object held = open(client_.get(), "a");
    const uint64_t instance = daemon_info().instance;
    kill();
    ASSERT_TRUE(again({"--discard", "--device", "host:256M", "--device", "cuda"})) << log();
    EXPECT_TRUE(holds(held.get(), 1)) << "a mapping is the client's";
    EXPECT_NE(daemon_info().instance, instance);
    stat(client_.get(), "a", -ENOENT);
    EXPECT_EQ(total(client_.get()).used_bytes, 0u);
}

TEST_F(SurvivalUnderLoad, AnOrderlyEndLeavesNothing) {
    make("a", 5000, "host", 1);
    kill_it();
    const pid_t keeper = keeper_pid();
    EXPECT_EQ(stop(), 0);
    EXPECT_EQ(keeper_pid(), 0);
    EXPECT_TRUE(eventually([&] { return ::kill(keeper, 0) != 0; })) << "gshm-keeper is there";
    EXPECT_FALSE(std::filesystem::exists(dir()));
}

}  // namespace
}  // namespace gshm::core::test

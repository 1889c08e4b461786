// gshmd is replaced by one that speaks other protocols, while clients hold objects, maps, a watch, a ring and a waiting
// request. GSHM_PROTOCOL_RANGE makes a gshmd, or the library, speak a range of its own.
#include "integration/ring_fixture.h"

namespace gshm::core::test {
namespace {

// The range of clients that this process connects from now on.
class Speaking {
public:
    explicit Speaking(const char* range) { setenv("GSHM_PROTOCOL_RANGE", range, 1); }
    ~Speaking() { unsetenv("GSHM_PROTOCOL_RANGE"); }
};

class ProtocolTakeover : public RingTest {
protected:
    void SetUp() override {}
    std::vector<std::string> speaking(const std::string& range) const {
        auto env = daemon_env();
        env.push_back("GSHM_PROTOCOL_RANGE=" + range);
        return env;
    }
    void start_speaking(const std::string& range) {
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda"}, speaking(range))) << log();
        client_ = connect(kPatience);
    }
    void replace_by(const std::string& range) {
        ASSERT_TRUE(take_over({}, speaking(range))) << log();
        EXPECT_EQ(gshm_ping(client_.get()), 0) << gshm_last_error();
    }
    uint32_t protocol() { return daemon_info().protocol; }
    static uint32_t protocol_of(gshm_client* client) {
        gshm_daemon_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_daemon(client, &info), 0) << gshm_last_error();
        return info.protocol;
    }
};

struct DestroyWatch {
    void operator()(gshm_watch* watch) const { gshm_watch_destroy(watch); }
};
using Watch = std::unique_ptr<gshm_watch, DestroyWatch>;

gshm_event next(const Watch& watch) {
    gshm_event event = {};
    event.struct_size = sizeof event;
    EXPECT_EQ(gshm_watch_next(watch.get(), &event, 60'000), 0) << gshm_last_error();
    return event;
}

// Up by one protocol, to a gshmd without protocol 1, and between two without a common protocol: the client notices
// nothing.
TEST_P(ProtocolTakeover, ClientsGoOn) {
    start_speaking("1-1");
    ASSERT_EQ(protocol(), 1u);
    auto written = make("written", 3 * kMiB, where(), 1, false);
    auto sealed = make("sealed", kMiB, where(), 2, true, GSHM_KEEP);
    auto unlinked = make("unlinked", kMiB, where(), 3);
    ASSERT_EQ(gshm_unlink(client_.get(), "unlinked"), 0);
    void* memory = nullptr;
    if (std::string(where()) == "host") {
        memory = gshm_data(written.get());
        ASSERT_NE(memory, nullptr);
    }
    gshm_watch* made = nullptr;
    ASSERT_EQ(gshm_watch_create(client_.get(), "later/", 0, &made), 0) << gshm_last_error();
    const Watch watch(made);
    auto ring = make_ring();
    const uint32_t file = add(ring, make_file("f", pattern(kMiB, 4)));
    ASSERT_EQ(one(ring, GSHM_IO_READ, file, 0, written.get(), 0, kMiB), static_cast<int64_t>(kMiB));

    uint32_t before = 1;
    int step = 0;
    for (const auto& [range, spoken] :
         std::vector<std::pair<std::string, uint32_t>>{{"1-2", 2}, {"2-2", 2}, {"1-1", 1}, {"2-2", 2}, {"1-2", 2}}) {
        SCOPED_TRACE("to " + range);
        const std::string name = "later/" + std::to_string(++step);
        Client waiter = connect(kPatience);
        ASSERT_EQ(protocol_of(waiter.get()), before);
        std::atomic<bool> asked = false;
        int waited = -1;
        std::thread waiting([&] {
            asked = true;
            gshm_stat_info info = {};
            info.struct_size = sizeof info;
            waited = gshm_wait(waiter.get(), name.c_str(), GSHM_WAIT_EXISTS, -1, &info);
        });
        while (!asked) std::this_thread::yield();
        replace_by(range);
        EXPECT_EQ(protocol(), spoken);
        before = spoken;

        // Maps and handles.
        if (memory != nullptr) {
            static_cast<char*>(memory)[2 * kMiB] = static_cast<char>(step);
            char seen = 0;
            EXPECT_EQ(gshm_copy_out(written.get(), 2 * kMiB, &seen, 1), 0) << gshm_last_error();
            EXPECT_EQ(seen, static_cast<char>(step));
        }
        EXPECT_TRUE(holds(sealed.get(), 2));
        EXPECT_TRUE(holds(unlinked.get(), 3)) << "held only by its lease";
        EXPECT_TRUE(has("sealed", 2));
        EXPECT_EQ(stat(client_.get(), "sealed").leases, 1u);
        EXPECT_EQ(total(client_.get()).unlinked_bytes, kMiB);
        // The waiting request and the watch.
        auto later = create(client_.get(), name.c_str(), 100, where(), GSHM_KEEP | GSHM_NO_MAP);
        waiting.join();
        EXPECT_EQ(waited, 0);
        EXPECT_EQ(protocol_of(waiter.get()), spoken);
        gshm_event event = next(watch);
        // An event before the watch is connected again is lost, and reported as such.
        EXPECT_EQ(event.event, uint32_t{GSHM_EVENT_OVERFLOW});
        const std::string seen_name = "later/seen" + std::to_string(step);
        auto seen_object = create(client_.get(), seen_name.c_str(), 100, where(), GSHM_KEEP | GSHM_NO_MAP);
        event = next(watch);
        EXPECT_EQ(event.event, uint32_t{GSHM_EVENT_CREATED});
        EXPECT_EQ(std::string(event.name), seen_name);
        // The ring, with the file and the object that it had.
        EXPECT_EQ(one(ring, GSHM_IO_READ, file, 0, written.get(), kMiB, kMiB), static_cast<int64_t>(kMiB))
            << gshm_last_error();
        EXPECT_EQ(bytes_of(written.get()).substr(kMiB, kMiB), pattern(kMiB, 4));
        // Listings have records too.
        gshm_listing* listing = nullptr;
        ASSERT_EQ(gshm_list(client_.get(), "later", 0, &listing), 0) << gshm_last_error();
        EXPECT_EQ(gshm_listing_count(listing), static_cast<size_t>(2 * step));
        gshm_listing_free(listing);
        ASSERT_EQ(gshm_list_unlinked(client_.get(), &listing), 0) << gshm_last_error();
        EXPECT_EQ(gshm_listing_count(listing), 1u);
        gshm_listing_free(listing);
        gshm_holder holder = {};
        holder.struct_size = sizeof holder;
        size_t holders = 0;
        EXPECT_EQ(gshm_holders(client_.get(), "sealed", &holder, 1, &holders), 0) << gshm_last_error();
        EXPECT_EQ(holders, 1u);
        EXPECT_EQ(holder.pid, getpid());
    }
    EXPECT_EQ(gshm_seal(written.get()), 0) << gshm_last_error();
}

// Its memory stays as it is, and a gshmd that speaks its protocol takes its session up again.
TEST_P(ProtocolTakeover, AClientWithoutACommonProtocolLosesNothing) {
    {
        const Speaking old("1-1");
        start_speaking("1-2");
        ASSERT_EQ(protocol(), 1u);
    }
    auto written = make("written", kMiB, where(), 1, false);
    auto unlinked = make("unlinked", kMiB, where(), 2);
    ASSERT_EQ(gshm_unlink(client_.get(), "unlinked"), 0);
    const Client newer = connect(kPatience);
    {
        const Speaking old("1-1");
        ASSERT_TRUE(take_over({}, speaking("2-2"))) << log();
        EXPECT_EQ(gshm_ping(client_.get()), -EPROTO);
        const std::string sentence = gshm_last_error();
        EXPECT_NE(sentence.find("speaks protocol 2, the client"), std::string::npos) << sentence;
        EXPECT_NE(sentence.find("speaks protocol 1: upgrade the client's libgshm"), std::string::npos) << sentence;
        EXPECT_EQ(gshm_seal(written.get()), -EPROTO);
        if (std::string(where()) == "host") {
            auto* bytes = static_cast<char*>(gshm_data(written.get()));
            EXPECT_EQ(std::string(bytes, kMiB), pattern(kMiB, 1)) << "its map is untouched";
            bytes[5] = 77;
        }
    }
    EXPECT_EQ(protocol_of(newer.get()), 2u);
    EXPECT_EQ(total(newer.get()).unlinked_bytes, kMiB) << "it still holds it";
    EXPECT_EQ(stat(newer.get(), "written").leases, 1u);
    {
        const Speaking old("1-1");
        replace_by("1-2");
        EXPECT_EQ(protocol(), 1u);
        EXPECT_TRUE(holds(unlinked.get(), 2));
        if (std::string(where()) == "host") {
            char byte = 0;
            EXPECT_EQ(gshm_copy_out(written.get(), 5, &byte, 1), 0) << gshm_last_error();
            EXPECT_EQ(byte, 77);
        }
        EXPECT_EQ(gshm_seal(written.get()), 0) << gshm_last_error();
    }
}

TEST_P(ProtocolTakeover, UnderLoad) {
    start_speaking("1-1");
    auto sealed = make("sealed", kMiB, where(), 2, true, GSHM_KEEP);
    Workers workers;
    for (int i = 0; i < 3; ++i) {
        workers.add([&](Workers::Self& self) -> std::string {
            Client client = connect(kPatience);
            while (self.goes_on()) {
                gshm_object* object = nullptr;
                if (gshm_open(client.get(), "sealed", map_in_child(where()), &object) != 0) return gshm_last_error();
                char byte = 0;
                const int copied = gshm_copy_out(object, 0, &byte, 1);
                gshm_close(object);
                if (copied != 0) return gshm_last_error();
                const std::string name = "mine" + std::to_string(self.number());
                auto mine = spec(name.c_str(), 4096, "host", GSHM_NO_MAP);
                if (gshm_create(client.get(), &mine, &object) != 0) return gshm_last_error();
                gshm_close(object);
                if (gshm_unlink(client.get(), name.c_str()) != 0) return gshm_last_error();
                gshm_listing* listing = nullptr;
                if (gshm_list(client.get(), "", 0, &listing) != 0) return gshm_last_error();
                gshm_listing_free(listing);
            }
            return {};
        });
    }
    ASSERT_TRUE(workers.wait_for_rounds(3)) << workers.finish();
    for (const char* range : {"1-2", "2-2", "1-2", "1-1"}) {
        replace_by(range);
        ASSERT_TRUE(workers.wait_for_rounds(3)) << workers.finish();
    }
    EXPECT_EQ(workers.finish(), "");
    EXPECT_TRUE(holds(sealed.get(), 2));
}

TEST_P(ProtocolTakeover, AWrongRangeIsRefusedAtTheStart) {
    start_speaking("1-2");
    ChildProcess wrong;
    ASSERT_TRUE(wrong.spawn({bin("gshmd"), "--dir", dir(), "-f", "--takeover"}, speaking("7-9")));
    const auto result = wrong.finish();
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("GSHM_PROTOCOL_RANGE"), std::string::npos) << result.err;
    EXPECT_EQ(gshm_ping(client_.get()), 0);
    EXPECT_TRUE(running());
}

INSTANTIATE_TEST_SUITE_P(Devices, ProtocolTakeover, ::testing::Values("host", "cuda:0"), device_of);

}  // namespace
}  // namespace gshm::core::test

// A thousand processes that are killed at once.
#include <filesystem>
#include <malloc.h>

#include "library_fixture.h"

namespace gshm::core::test {
namespace {

// The resources of gshmd.
struct Footprint {
    size_t descriptors = 0;
    size_t mappings = 0;
    uint32_t sessions = 0;
    uint64_t objects = 0;
    uint64_t object_bytes = 0;
    uint64_t unlinked_bytes = 0;
    bool operator==(const Footprint&) const = default;
};

void PrintTo(const Footprint& it, std::ostream* out) {
    *out << it.descriptors << " descriptors, " << it.mappings << " mappings, " << it.sessions << " sessions, "
         << it.objects << " objects, " << it.object_bytes << " bytes in objects, " << it.unlinked_bytes << " unlinked";
}

class ManyClients : public LibraryTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override {
        malloc_trim(0);  // else each of a thousand processes copies and frees the memory of earlier tests
        start_all();
        for (auto [name, size] : {std::pair{"small", 10'000u}, {"other", 20'000u}, {"large", 3u << 20}}) {
            auto object = create(client_.get(), name, size, GetParam(), 0, 0644);
            ASSERT_EQ(gshm_fill(object.get(), 0, size, 0x5A), 0);
            ASSERT_EQ(gshm_seal(object.get()), 0);
        }
    }
    Footprint footprint() {
        gshm_daemon_info daemon = {};
        daemon.struct_size = sizeof daemon;
        EXPECT_EQ(gshm_daemon(client_.get(), &daemon), 0) << gshm_last_error();
        const auto space = device(client_.get(), GetParam());
        const std::string proc = "/proc/" + std::to_string(pid());
        std::ifstream maps(proc + "/maps");
        // Shared mappings only: the private ones of an allocator vary, and a sanitizer has many.
        long mappings = 0;
        for (std::string line; std::getline(maps, line);) {
            const size_t rights = line.find(' ');
            if (rights != std::string::npos && line.size() > rights + 4 && line[rights + 4] == 's') ++mappings;
        }
        const std::filesystem::directory_iterator fds(proc + "/fd");
        return {static_cast<size_t>(std::distance(begin(fds), end(fds))),
                static_cast<size_t>(mappings),
                daemon.sessions,
                daemon.objects,
                space.object_bytes,
                space.unlinked_bytes};
    }
    // A typical client, until it is killed.
    [[noreturn]] void be_a_client(int number, int ready) {
        auto client = connect(60'000);
        const char* const sealed[] = {"small", "other", "large"};
        gshm_object* held[3] = {};
        int status[3] = {};
        if (gshm_open_batch(client.get(), sealed, 3, map_in_child(GetParam()), held, status) != 0) _exit(1);
        const std::string name = "made/" + std::to_string(number);
        const std::string other = "own/" + std::to_string(number);
        gshm_create_spec specs[] = {spec(name.c_str(), 30'000, GetParam()),
                                    spec(other.c_str(), 5000, GetParam(), GSHM_DEDICATED),
                                    spec("large", 6000, GetParam(), GSHM_UNNAMED)};
        gshm_object* made[3] = {};
        // The fake GPU has no room for 2 MiB each.
        if (GetParam() != std::string("host")) specs[1].flags = 0;
        for (auto& one : specs) one.flags |= map_in_child(GetParam());
        if (gshm_create_batch(client.get(), specs, 3, made, status) != 0) _exit(2);
        if (gshm_fill(made[0], 0, 30'000, 0xEE) != 0) _exit(3);
        if (write(ready, "x", 1) != 1) _exit(4);
        for (;;) pause();
    }
    std::vector<pid_t> start_clients(int count) {
        int ready[2];
        EXPECT_EQ(pipe(ready), 0);
        std::vector<pid_t> clients;
        for (int i = 0; i < count; ++i) {
            pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                ::close(ready[0]);
                be_a_client(i, ready[1]);
            }
            EXPECT_GT(child, 0);
            clients.push_back(child);
        }
        ::close(ready[1]);
        char bytes[256];
        int came = 0;
        for (ssize_t got = 0; came < count && (got = ::read(ready[0], bytes, sizeof bytes)) > 0;)
            came += static_cast<int>(got);
        ::close(ready[0]);
        EXPECT_EQ(came, count) << log();
        return clients;
    }
    // As eventually(), with a longer timeout for a machine with a thousand dying processes.
    template <typename Condition>
    static bool in_the_end(Condition condition) {
        for (int i = 0; i < 10; ++i) {
            if (eventually(condition)) return true;
        }
        return false;
    }
    static void kill_all(const std::vector<pid_t>& clients) {
        for (pid_t client : clients) ::kill(client, SIGKILL);
        for (pid_t client : clients) waitpid(client, nullptr, 0);
    }
};
INSTANTIATE_TEST_SUITE_P(Devices, ManyClients, ::testing::Values("host", "cuda:0"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(ManyClients, AThousandKilledAtOnceLeaveNothing) {
    constexpr int kClients = 1000;
    // A small run first, so that one-time resources of gshmd exist.
    kill_all(start_clients(20));
    ASSERT_TRUE(
        in_the_end([&] { return footprint().sessions == 1 && footprint().object_bytes == 30'000 + (3 << 20); }));
    const auto before = footprint();
    const auto space = device(client_.get(), GetParam());

    const auto clients = start_clients(kClients);
    const auto during = footprint();
    EXPECT_EQ(during.sessions, before.sessions + kClients);
    EXPECT_EQ(during.objects, before.objects + 3 * kClients);
    EXPECT_EQ(during.unlinked_bytes, 6000u * kClients);

    const auto start = std::chrono::steady_clock::now();
    const auto since = [&] {
        return static_cast<int>(
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count());
    };
    for (pid_t client : clients) ::kill(client, SIGKILL);
    gshm_daemon_info daemon = {};
    daemon.struct_size = sizeof daemon;
    int killed_ms = since();
    EXPECT_TRUE(
        in_the_end([&] { return gshm_daemon(client_.get(), &daemon) == 0 && daemon.sessions == before.sessions; }));
    int leases_ms = since();
    EXPECT_TRUE(in_the_end([&] { return device(client_.get(), GetParam()).object_bytes == before.object_bytes; }));
    int bytes_ms = since();
    // gshmd keeps a few files of host memory open and mapped.
    constexpr size_t kCached = 64;
    const auto is_back = [&] {
        auto now = footprint();
        if (now.descriptors <= before.descriptors + kCached) now.descriptors = before.descriptors;
        if (now.mappings <= before.mappings + kCached) now.mappings = before.mappings;
        return now == before;
    };
    EXPECT_TRUE(in_the_end(is_back)) << "before: " << ::testing::PrintToString(before)
                                     << "\nafter:  " << ::testing::PrintToString(footprint());
    int all_ms = since();
    for (pid_t client : clients) waitpid(client, nullptr, 0);
    RecordProperty("leases_ms", leases_ms);
    RecordProperty("all_ms", all_ms);
    printf("%d clients killed in %d ms: leases back after %d ms, bytes after %d ms, everything after %d ms\n", kClients,
           killed_ms, leases_ms, bytes_ms, all_ms);
    EXPECT_EQ(stat(client_.get(), "made/1", -ENOENT).id, 0u);
    // An empty slab is kept for the next object, and is freed on demand: all free memory can be allocated.
    create(client_.get(), "all", space.capacity_bytes - space.used_bytes, GetParam(), GSHM_NO_MAP);
    std::vector<uint8_t> bytes(3 << 20);
    ASSERT_EQ(gshm_copy_out(open(client_.get(), "large").get(), 0, bytes.data(), bytes.size()), 0);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0x5A; }));
}

}  // namespace
}  // namespace gshm::core::test

// The library against a real daemon: on host memory, and on CUDA through the fake driver in both processes.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>

#include "daemon_fixture.h"
#include "gshm/gshm.h"

namespace gshm::test {
namespace {

using namespace std::chrono_literals;

// The fake driver for this process too: loaded by path, it answers for "libcuda.so.1" from then on.
const bool fake_loaded = [] {
    setenv("FAKECUDA_DEVICES", "2", 1);
    setenv("FAKECUDA_FABRIC", "1", 1);
    return dlopen(GSHM_FAKECUDA_PATH, RTLD_NOW | RTLD_GLOBAL) != nullptr;
}();

struct Closer {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};
using Client = std::unique_ptr<gshm_client, Closer>;
using Object = std::unique_ptr<gshm_object, Closer>;

class LibraryTest : public ::testing::Test, protected DaemonFixture {
protected:
    std::vector<std::string> daemon_env() const {
        auto env = fake_cuda_env(2);
        env.push_back("FAKECUDA_FABRIC=1");
        env.push_back("FAKECUDA_CONTROL=" + scratch() + "/faults");
        return env;
    }
    void start_all() {
        ASSERT_TRUE(fake_loaded);
        ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda"}, daemon_env())) << log();
        client_ = connect();
    }
    Client connect(int timeout_ms = 2000) {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        std::string folder = dir();
        options.dir = folder.c_str();
        options.timeout_ms = timeout_ms;
        gshm_client* client = nullptr;
        EXPECT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
        return Client(client);
    }
    static gshm_create_spec spec(const char* name, uint64_t size, const char* device, uint32_t flags = 0) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name;
        spec.size_bytes = size;
        spec.device = device;
        spec.flags = flags;
        return spec;
    }
    Object create(gshm_client* client, const char* name, uint64_t size, const char* device, uint32_t flags = 0,
                  uint32_t mode = 0600) {
        auto wanted = spec(name, size, device, flags);
        wanted.mode = mode;
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_create(client, &wanted, &object), 0) << gshm_last_error();
        return Object(object);
    }
    static Object open(gshm_client* client, const char* name, uint32_t flags = 0) {
        gshm_object* object = nullptr;
        EXPECT_EQ(gshm_open(client, name, flags, &object), 0) << gshm_last_error();
        return Object(object);
    }
    static int open_code(gshm_client* client, const char* name, uint32_t flags = 0) {
        gshm_object* object = nullptr;
        int code = gshm_open(client, name, flags, &object);
        if (code == 0) gshm_close(object);
        return code;
    }
    static gshm_stat_info stat(gshm_client* client, const char* name, int expected = 0) {
        gshm_stat_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_stat(client, name, &info), expected) << name;
        return info;
    }
    gshm_device_info device(gshm_client* client, const std::string& name) {
        gshm_device_info devices[8] = {};
        devices[0].struct_size = sizeof devices[0];
        size_t count = 0;
        EXPECT_EQ(gshm_devices(client, devices, 8, &count), 0);
        for (size_t i = 0; i < count; ++i) {
            if (name == devices[i].name) return devices[i];
        }
        ADD_FAILURE() << "no device " << name;
        return {};
    }
    // Runs a body in a child process; its exit code. The child must not use handles of the parent.
    static int in_child(const std::function<int()>& body, uid_t uid = 0) {
        pid_t child = fork();
        if (child == 0) {
            if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(99);
            _exit(body());
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    // Polls until a condition holds; what other processes do takes effect "at once", but not in this thread.
    template <typename Condition>
    static bool eventually(Condition condition) {
        for (int i = 0; i < 2000; ++i) {
            if (condition()) return true;
            std::this_thread::sleep_for(5ms);
        }
        return false;
    }

    Client client_;
};

class LibraryOnDevice : public LibraryTest, public ::testing::WithParamInterface<const char*> {
protected:
    void SetUp() override { start_all(); }
    const char* where() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, LibraryOnDevice, ::testing::Values("host", "cuda:0", "cuda:1"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, ':');
    return name;
});

TEST_P(LibraryOnDevice, BytesTravelBetweenClients) {
    for (uint64_t size : {uint64_t{1}, uint64_t{4097}, uint64_t{3} << 20}) {
        auto made = create(client_.get(), "t/x", size, where(), 0, 0644);
        ASSERT_TRUE(made);
        EXPECT_EQ(gshm_size(made.get()), size);
        EXPECT_STREQ(gshm_device(made.get()), where());
        std::vector<uint8_t> data(size, 1);
        ASSERT_EQ(gshm_copy_out(made.get(), 0, data.data(), size), 0);
        EXPECT_EQ(data, std::vector<uint8_t>(size)) << "new memory is zero";
        for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(i * 7 + 3);
        ASSERT_EQ(gshm_copy_in(made.get(), 0, data.data(), size), 0) << gshm_last_error();
        ASSERT_EQ(gshm_seal(made.get()), 0);
        EXPECT_EQ(gshm_copy_in(made.get(), 0, data.data(), 1), -EPERM);

        auto other = connect();
        for (uint32_t flags : {0u, static_cast<uint32_t>(GSHM_NO_MAP)}) {
            auto opened = open(other.get(), "t/x", flags | GSHM_SEALED_ONLY);
            ASSERT_TRUE(opened);
            EXPECT_EQ(gshm_data(opened.get()) == nullptr, flags != 0);
            EXPECT_EQ(gshm_id(opened.get()), gshm_id(made.get()));
            std::vector<uint8_t> back(size);
            ASSERT_EQ(gshm_copy_out(opened.get(), 0, back.data(), size), 0) << gshm_last_error();
            EXPECT_EQ(back, data);
            EXPECT_EQ(gshm_copy_in(opened.get(), 0, data.data(), 1), -EACCES);
            EXPECT_EQ(gshm_fill(opened.get(), 0, 1, 9), -EACCES);
        }
        ASSERT_EQ(gshm_unlink(client_.get(), "t/x"), 0);
    }
}

TEST_P(LibraryOnDevice, CopiesThroughTheDaemonInPieces) {
    constexpr size_t kSize = (9 << 20) + 123;
    auto object = create(client_.get(), "big", kSize, where(), GSHM_NO_MAP);
    std::vector<uint8_t> data(kSize);
    for (size_t i = 0; i < kSize; ++i) data[i] = static_cast<uint8_t>(i ^ (i >> 11));
    ASSERT_EQ(gshm_copy_in(object.get(), 0, data.data(), kSize), 0) << gshm_last_error();
    ASSERT_EQ(gshm_fill(object.get(), 5, 1000, 0x77), 0) << gshm_last_error();
    std::fill_n(data.begin() + 5, 1000, 0x77);
    std::vector<uint8_t> back(kSize - 3);
    ASSERT_EQ(gshm_copy_out(object.get(), 3, back.data(), back.size()), 0);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), data.begin() + 3));
    EXPECT_EQ(gshm_copy_out(object.get(), 4, back.data(), kSize), -EINVAL);
    EXPECT_EQ(gshm_fill(object.get(), kSize, 1, 0), -EINVAL);
}

TEST_P(LibraryOnDevice, SmallObjectsShareOneMappedExtent) {
    std::vector<std::string> names;
    std::vector<gshm_create_spec> specs;
    for (int i = 0; i < 700; ++i) names.push_back("batch/o" + std::to_string(i));
    for (const auto& name : names) specs.push_back(spec(name.c_str(), 1000, where()));
    std::vector<gshm_object*> made(names.size());
    std::vector<int> status(names.size(), 1);
    ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), specs.size(), made.data(), status.data()), 0)
        << gshm_last_error();
    for (size_t i = 0; i < made.size(); ++i) {
        uint64_t value = i * 1234567;
        ASSERT_EQ(gshm_copy_in(made[i], 8, &value, sizeof value), 0);
    }
    ASSERT_EQ(gshm_seal_batch(made.data(), made.size(), status.data()), 0);

    auto other = connect();
    std::vector<const char*> raw;
    for (const auto& name : names) raw.push_back(name.c_str());
    raw.push_back("batch/missing");
    std::vector<gshm_object*> opened(raw.size());
    status.assign(raw.size(), 1);
    EXPECT_EQ(gshm_open_batch(other.get(), raw.data(), raw.size(), 0, opened.data(), status.data()), -ENOENT);
    EXPECT_EQ(status.back(), -ENOENT);
    EXPECT_EQ(opened.back(), nullptr);
    for (size_t i = 0; i < names.size(); ++i) {
        ASSERT_EQ(status[i], 0);
        uint64_t value = 0;
        ASSERT_EQ(gshm_copy_out(opened[i], 8, &value, sizeof value), 0);
        ASSERT_EQ(value, i * 1234567);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(gshm_data(opened[i])) % 256, 0u);
    }
    EXPECT_LE(device(client_.get(), where()).used_bytes, uint64_t{8} << 20);
    gshm_close_batch(opened.data(), opened.size());
    gshm_close_batch(made.data(), made.size());
    gshm_listing* listing = nullptr;
    ASSERT_EQ(gshm_list(client_.get(), "batch", 0, &listing), 0);
    EXPECT_EQ(gshm_listing_count(listing), 700u);
    gshm_listing_free(listing);
}

TEST_P(LibraryOnDevice, ManySeparateExtentsInOneBatch) {
    // More extents than one message carries descriptors, and more than this process may have open at once.
    rlimit old = {};
    getrlimit(RLIMIT_NOFILE, &old);
    rlimit low = {300, old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    constexpr size_t kCount = 450;
    std::vector<std::string> names;
    std::vector<gshm_create_spec> specs;
    uint64_t size = std::string(where()) == "host" ? 100 : 4096;
    for (size_t i = 0; i < kCount; ++i) names.push_back("d" + std::to_string(i));
    for (const auto& name : names) specs.push_back(spec(name.c_str(), size, where(), GSHM_DEDICATED | GSHM_NO_MAP | GSHM_KEEP));
    std::vector<gshm_object*> objects(kCount);
    std::vector<int> status(kCount);
    bool fits = kCount * (2 << 20) <= device(client_.get(), where()).capacity_bytes;
    int code = gshm_create_batch(client_.get(), specs.data(), kCount, objects.data(), status.data());
    size_t made = static_cast<size_t>(std::count(status.begin(), status.end(), 0));
    EXPECT_EQ(code, fits ? 0 : -ENOSPC) << gshm_last_error();
    EXPECT_GE(made, 100u);
    gshm_close_batch(objects.data(), kCount);
    std::vector<const char*> raw;
    for (size_t i = 0; i < made; ++i) raw.push_back(names[i].c_str());
    code = gshm_open_batch(client_.get(), raw.data(), made, 0, objects.data(), status.data());
    EXPECT_EQ(code, 0) << gshm_last_error();
    gshm_close_batch(objects.data(), made);
    setrlimit(RLIMIT_NOFILE, &old);
}

TEST_P(LibraryOnDevice, ReusedMemoryIsZeroForTheNextOwner) {
    for (uint64_t size : {uint64_t{5000}, uint64_t{4} << 20}) {
        for (int round = 0; round < 4; ++round) {
            auto object = create(client_.get(), "r", size, where());
            std::vector<uint8_t> data(size);
            ASSERT_EQ(gshm_copy_out(object.get(), 0, data.data(), size), 0);
            ASSERT_TRUE(std::all_of(data.begin(), data.end(), [](uint8_t b) { return b == 0; }));
            ASSERT_EQ(gshm_fill(object.get(), 0, size, 0xEE), 0);
            object.reset();
            ASSERT_EQ(gshm_unlink(client_.get(), "r"), 0);
        }
    }
}

TEST_P(LibraryOnDevice, ExportsAndImportsEveryHandleKind) {
    auto object = create(client_.get(), "e", 3000, where());
    const char text[] = "seen through a handle";
    ASSERT_EQ(gshm_copy_in(object.get(), 100, text, sizeof text), 0);
    uint32_t kinds = device(client_.get(), where()).handle_kinds;
    auto check = [&](gshm_object* imported) {
        char back[sizeof text] = {};
        ASSERT_EQ(gshm_copy_out(imported, 100, back, sizeof back), 0) << gshm_last_error();
        EXPECT_STREQ(back, text);
        EXPECT_EQ(gshm_size(imported), 3000u);
        gshm_close(imported);
    };
    gshm_handle_info info = {};
    info.struct_size = sizeof info;
    int fd = -1;
    gshm_object* imported = nullptr;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, &info), 0) << gshm_last_error();
    EXPECT_EQ(info.kind, static_cast<uint32_t>(GSHM_HANDLE_POSIX_FD));
    ASSERT_EQ(gshm_import_fd(where(), fd, &info, 0, &imported), 0) << gshm_last_error();
    close(fd);
    check(imported);
    uint8_t fabric[GSHM_FABRIC_HANDLE_BYTES];
    int code = gshm_export_fabric(object.get(), fabric, &info);
    EXPECT_EQ(code, (kinds & GSHM_HANDLE_FABRIC) != 0 ? 0 : -EOPNOTSUPP) << gshm_last_error();
    if (code == 0) {
        ASSERT_EQ(gshm_import_fabric(where(), fabric, &info, GSHM_WRITE, &imported), 0) << gshm_last_error();
        check(imported);
    }
    code = gshm_export_dmabuf(object.get(), &fd, &info);
    EXPECT_EQ(code, (kinds & GSHM_HANDLE_DMABUF) != 0 ? 0 : -EOPNOTSUPP) << gshm_last_error();
    if (code == 0) {
        ASSERT_EQ(gshm_import_dmabuf(where(), fd, &info, GSHM_WRITE, &imported), 0) << gshm_last_error();
        close(fd);
        check(imported);
    }
}

TEST_P(LibraryOnDevice, WorksWithoutADaemonToo) {
    gshm_object* memory = nullptr;
    ASSERT_EQ(gshm_allocate(where(), 10000, 0, &memory), 0) << gshm_last_error();
    EXPECT_EQ(gshm_size(memory), 10000u);
    EXPECT_EQ(gshm_id(memory), 0u);
    ASSERT_EQ(gshm_fill(memory, 0, 10000, 0x42), 0);
    gshm_handle_info info = {};
    info.struct_size = sizeof info;
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(memory, &fd, &info), 0) << gshm_last_error();
    gshm_close(memory);
    gshm_object* imported = nullptr;
    ASSERT_EQ(gshm_import_fd(where(), fd, &info, 0, &imported), 0) << gshm_last_error();
    close(fd);
    uint8_t byte = 0;
    ASSERT_EQ(gshm_copy_out(imported, 9999, &byte, 1), 0);
    EXPECT_EQ(byte, 0x42);
    EXPECT_EQ(gshm_copy_in(imported, 0, &byte, 1), -EACCES);
    EXPECT_EQ(gshm_seal(imported), -EINVAL);
    gshm_close(imported);
}

TEST_P(LibraryOnDevice, ADeadWriterLeavesOnlyWhatItSealed) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        auto mine = connect();
        // No CUDA in a forked child of a process that has it: the daemon does the work.
        auto sealed = create(mine.get(), "w/sealed", 100, where(), GSHM_NO_MAP, 0644);
        auto open_one = create(mine.get(), "w/open", 3 << 20, where(), GSHM_NO_MAP, 0644);
        auto kept = create(mine.get(), "w/kept", 100, where(), GSHM_NO_MAP | GSHM_KEEP, 0644);
        bool good = gshm_fill(sealed.get(), 0, 100, 5) == 0 && gshm_seal(sealed.get()) == 0;
        [[maybe_unused]] ssize_t put = write(ready[1], good ? "g" : "b", 1);
        pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    ASSERT_EQ(answer, 'g');
    auto held = open(client_.get(), "w/open", GSHM_NO_MAP);
    gshm_holder holders[4] = {};
    holders[0].struct_size = sizeof holders[0];
    size_t count = 0;
    ASSERT_EQ(gshm_holders(client_.get(), "w/open", holders, 4, &count), 0);
    EXPECT_EQ(count, 2u);
    EXPECT_TRUE(holders[0].pid == child || holders[1].pid == child);
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually([&] { return open_code(client_.get(), "w/open", GSHM_NO_MAP) == -ENOENT; }));
    EXPECT_EQ(device(client_.get(), where()).unlinked_bytes, uint64_t{3} << 20) << "we still hold it";
    held.reset();
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).unlinked_bytes == 0; }));
    EXPECT_EQ(stat(client_.get(), "w/kept").leases, 0u);
    auto sealed = open(client_.get(), "w/sealed", GSHM_NO_MAP);
    uint8_t byte = 0;
    ASSERT_EQ(gshm_copy_out(sealed.get(), 99, &byte, 1), 0);
    EXPECT_EQ(byte, 5);
    close(ready[0]);
    close(ready[1]);
}

TEST_P(LibraryOnDevice, ThreadsShareAClient) {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 40; ++i) {
                std::string name = "th/" + std::to_string(t) + "-" + std::to_string(i);
                auto wanted = spec(name.c_str(), 2000 + static_cast<uint64_t>(i), where());
                gshm_object* object = nullptr;
                uint32_t mark = static_cast<uint32_t>(t * 1000 + i);
                uint32_t back = 0;
                bool good = gshm_create(client_.get(), &wanted, &object) == 0 &&
                            gshm_copy_in(object, 4, &mark, sizeof mark) == 0 && gshm_seal(object) == 0;
                gshm_close(object);
                object = nullptr;
                good = good && gshm_open(client_.get(), name.c_str(), 0, &object) == 0 &&
                       gshm_copy_out(object, 4, &back, sizeof back) == 0 && back == mark;
                gshm_close(object);
                if (i % 2 == 0) good = good && gshm_unlink(client_.get(), name.c_str()) == 0;
                if (!good) ++failures;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failures, 0) << gshm_last_error();
}

class LibraryCalls : public LibraryTest {
protected:
    void SetUp() override { start_all(); }
};

TEST_F(LibraryCalls, BadInputGetsAClearError) {
    auto code = [&](const char* name, uint64_t size, const char* device = "host", uint32_t mode = 0600) {
        auto wanted = spec(name, size, device);
        wanted.mode = mode;
        gshm_object* object = nullptr;
        int result = gshm_create(client_.get(), &wanted, &object);
        EXPECT_EQ(object, nullptr);
        EXPECT_STRNE(gshm_last_error(), "");
        return result;
    };
    EXPECT_EQ(code("x", 0), -EINVAL);
    EXPECT_EQ(code("x", uint64_t{1} << 40), -ENOSPC);
    EXPECT_EQ(code("x", uint64_t{1} << 63), -EINVAL);
    EXPECT_EQ(code("x", ~uint64_t{0}), -EINVAL);
    EXPECT_EQ(code("", 1), -EINVAL);
    EXPECT_EQ(code("/x", 1), -EINVAL);
    EXPECT_EQ(code("a/../x", 1), -EINVAL);
    EXPECT_EQ(code("\xFF\xFE", 1), -EILSEQ);
    EXPECT_EQ(code(std::string(256, 'n').c_str(), 1), -ENAMETOOLONG);
    EXPECT_EQ(code(std::string(200000, 'n').c_str(), 1), -ENAMETOOLONG);
    EXPECT_EQ(code("x", 1, "cuda:9"), -ENODEV);
    EXPECT_EQ(code("x", 1, "tape"), -ENODEV);
    EXPECT_EQ(code("x", 1, "host", 07777), -EINVAL);
    EXPECT_EQ(code(nullptr, 1), -EINVAL);
    auto object = create(client_.get(), "x", 1, "host");
    EXPECT_EQ(code("x", 1), -EEXIST);
    EXPECT_EQ(open_code(client_.get(), "nothing"), -ENOENT);
    EXPECT_EQ(open_code(client_.get(), "x", 1u << 30), -EINVAL);
    EXPECT_EQ(gshm_rename(client_.get(), "nothing", "y", 0), -ENOENT);
    EXPECT_EQ(gshm_unlink(client_.get(), "nothing"), -ENOENT);
    EXPECT_EQ(gshm_ping(nullptr), -EINVAL);
    EXPECT_EQ(gshm_copy_in(nullptr, 0, "", 0), -EINVAL);
    gshm_stat_info info = {};
    EXPECT_EQ(gshm_stat(client_.get(), "x", &info), -EINVAL) << "struct_size not set";
    EXPECT_EQ(gshm_ping(client_.get()), 0);
}

TEST_F(LibraryCalls, AFullDeviceIsAnErrorAndTheDaemonGoesOn) {
    std::vector<Object> objects;
    int code = 0;
    for (int i = 0; i < 1000 && code == 0; ++i) {
        std::string name = "fill/" + std::to_string(i);
        auto wanted = spec(name.c_str(), 32 << 20, "host");
        gshm_object* object = nullptr;
        code = gshm_create(client_.get(), &wanted, &object);
        if (code == 0) objects.emplace_back(object);
    }
    EXPECT_EQ(code, -ENOSPC);
    EXPECT_EQ(objects.size(), 8u);
    EXPECT_EQ(device(client_.get(), "host").used_bytes, uint64_t{256} << 20);
    EXPECT_NE(std::string(gshm_last_error()).find("full"), std::string::npos);
    objects.clear();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(gshm_unlink(client_.get(), ("fill/" + std::to_string(i)).c_str()), 0);
    EXPECT_TRUE(create(client_.get(), "again", 200 << 20, "host"));
}

TEST_F(LibraryCalls, EmptySlabsGiveWayWhenTheDeviceIsFull) {
    { auto small = create(client_.get(), "small", 100, "host"); }
    ASSERT_EQ(gshm_unlink(client_.get(), "small"), 0);
    EXPECT_GT(device(client_.get(), "host").used_bytes, 0u) << "one empty slab is kept";
    EXPECT_TRUE(create(client_.get(), "all", 256 << 20, "host")) << gshm_last_error();
}

TEST_F(LibraryCalls, WaitsForNamesAndSeals) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    EXPECT_EQ(gshm_wait(client_.get(), "later", GSHM_WAIT_EXISTS, 30, &info), -ETIMEDOUT);
    EXPECT_EQ(gshm_wait(client_.get(), "later", GSHM_WAIT_EXISTS, 0, nullptr), -ETIMEDOUT);
    EXPECT_EQ(gshm_wait(client_.get(), "later", 7, 0, nullptr), -EINVAL);
    std::atomic<int> exists{1};
    std::atomic<int> sealed{1};
    // Two waits over one connection, while it is used for other calls.
    std::thread first([&] { exists = gshm_wait(client_.get(), "later", GSHM_WAIT_EXISTS, -1, nullptr); });
    std::thread second([&] { sealed = gshm_wait(client_.get(), "later", GSHM_WAIT_SEALED, -1, &info); });
    std::this_thread::sleep_for(20ms);
    auto object = create(client_.get(), "later", 10, "host");
    first.join();
    EXPECT_EQ(exists, 0);
    EXPECT_EQ(sealed, 1);
    ASSERT_EQ(gshm_seal(object.get()), 0);
    second.join();
    EXPECT_EQ(sealed, 0);
    EXPECT_EQ(info.state, static_cast<uint32_t>(GSHM_STATE_SEALED));
    std::thread third([&] { exists = gshm_wait(client_.get(), "dir/moved", GSHM_WAIT_SEALED, 5000, nullptr); });
    std::this_thread::sleep_for(10ms);
    ASSERT_EQ(gshm_rename(client_.get(), "later", "dir/moved", 0), 0);
    third.join();
    EXPECT_EQ(exists, 0);
}

TEST_F(LibraryCalls, AttributesAreBytes) {
    gshm_attribute attributes[] = {{"dtype", "bf16", 4}, {"shape", "\0\1\2", 3}};
    auto wanted = spec("t", 10, "host");
    wanted.attributes = attributes;
    wanted.attribute_count = 2;
    gshm_object* object = nullptr;
    ASSERT_EQ(gshm_create(client_.get(), &wanted, &object), 0) << gshm_last_error();
    char value[16] = {};
    size_t bytes = 0;
    ASSERT_EQ(gshm_get_attribute(client_.get(), "t", "shape", value, sizeof value, &bytes), 0);
    EXPECT_EQ(std::string(value, bytes), std::string("\0\1\2", 3));
    EXPECT_EQ(gshm_get_attribute(client_.get(), "t", "dtype", value, 2, &bytes), -ERANGE);
    EXPECT_EQ(bytes, 4u);
    EXPECT_EQ(gshm_get_attribute(client_.get(), "t", "none", value, 2, &bytes), -ENODATA);
    std::string large(60000, 'l');
    EXPECT_EQ(gshm_set_attribute(client_.get(), "t", "large", large.data(), large.size()), 0) << gshm_last_error();
    EXPECT_EQ(gshm_set_attribute(client_.get(), "t", "larger", large.data(), large.size()), -E2BIG);
    ASSERT_EQ(gshm_list_attributes(client_.get(), "t", nullptr, 0, &bytes), 0);
    std::string names(bytes, '\0');
    ASSERT_EQ(gshm_list_attributes(client_.get(), "t", names.data(), names.size(), &bytes), 0);
    EXPECT_EQ(names, std::string("dtype\0large\0shape\0", 18));
    EXPECT_EQ(gshm_remove_attribute(client_.get(), "t", "dtype"), 0);
    EXPECT_EQ(gshm_remove_attribute(client_.get(), "t", "dtype"), -ENODATA);
    gshm_close(object);
}

TEST_F(LibraryCalls, ListingsAreSortedPagedAndRecursive) {
    std::vector<std::string> names;
    std::vector<gshm_create_spec> specs;
    for (int i = 0; i < 1000; ++i) names.push_back("l/" + std::to_string(i % 10) + "/" + std::to_string(i));
    for (const auto& name : names) specs.push_back(spec(name.c_str(), 1, "host", GSHM_NO_MAP));
    std::vector<gshm_object*> objects(1000);
    std::vector<int> status(1000);
    ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), 1000, objects.data(), status.data()), 0) << gshm_last_error();
    auto listed = [&](const char* path, uint32_t flags) {
        gshm_listing* listing = nullptr;
        std::vector<std::string> found;
        EXPECT_EQ(gshm_list(client_.get(), path, flags, &listing), 0) << gshm_last_error();
        for (size_t i = 0; i < gshm_listing_count(listing); ++i) found.emplace_back(gshm_listing_name(listing, i));
        EXPECT_EQ(gshm_listing_name(listing, found.size()), nullptr);
        gshm_listing_free(listing);
        return found;
    };
    auto all = listed("", GSHM_RECURSIVE);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(all, names);
    EXPECT_EQ(listed("l", 0).size(), 10u);
    EXPECT_EQ(listed("l/3", 0).size(), 100u);
    EXPECT_EQ(listed("l/3/3", 0), std::vector<std::string>{"l/3/3"});
    gshm_listing* listing = nullptr;
    EXPECT_EQ(gshm_list(client_.get(), "l/none", 0, &listing), -ENOENT);
    gshm_close_batch(objects.data(), objects.size());
}

TEST_F(LibraryCalls, OtherUsersObeyTheModeBits) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
    auto secret = create(client_.get(), "secret", 100, "host");
    auto open_one = create(client_.get(), "public/readable", 100, "host", 0, 0644);
    int result = in_child(
        [&] {
            auto mine = connect();
            if (open_code(mine.get(), "secret") != -EACCES) return 1;
            if (open_code(mine.get(), "public/readable", GSHM_WRITE) != -EACCES) return 2;
            gshm_object* object = nullptr;
            if (gshm_open(mine.get(), "public/readable", 0, &object) != 0) return 3;
            int fd = -1;
            if (gshm_export_fd(object, &fd, nullptr) != 0) return 4;
            if (write(fd, "x", 1) != -1) return 5;  // a reader's descriptor is for reading
            if (::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR) >= 0) return 6;
            if (gshm_unlink(mine.get(), "public/readable") != -EACCES) return 7;
            if (gshm_unlink(mine.get(), "secret") != -EPERM) return 8;
            if (gshm_seal_name(mine.get(), "public/readable") != -EACCES) return 9;
            if (gshm_set_attribute(mine.get(), "public/readable", "k", "v", 1) != -EACCES) return 10;
            if (gshm_shutdown(mine.get()) != -EPERM) return 11;
            auto theirs = create(mine.get(), "theirs", 10, "host");
            if (stat(mine.get(), "theirs").uid != 12345) return 12;
            return 0;
        },
        12345);
    EXPECT_EQ(result, 0);
    EXPECT_EQ(gshm_ping(client_.get()), 0);
}

TEST_F(LibraryCalls, AForkedChildGetsAnErrorAndNotACrash) {
    auto on_cuda = create(client_.get(), "c", 100, "cuda:0");
    auto on_host = create(client_.get(), "h", 100, "host");
    int result = in_child([&] {
        if (gshm_ping(client_.get()) != -ECHILD) return 1;
        uint8_t byte = 0;
        if (gshm_copy_out(on_cuda.get(), 0, &byte, 1) != -ECHILD) return 2;
        if (gshm_copy_out(on_host.get(), 0, &byte, 1) != -ECHILD) return 3;
        if (std::string(gshm_last_error()).find("fork") == std::string::npos) return 4;
        gshm_close(on_cuda.release());
        gshm_close(on_host.release());
        auto mine = connect();
        if (gshm_ping(mine.get()) != 0) return 5;
        auto fresh = open(mine.get(), "h");
        if (gshm_copy_out(fresh.get(), 0, &byte, 1) != 0) return 6;
        if (open_code(mine.get(), "c") != -ECHILD) return 7;  // CUDA does not survive a fork
        if (open_code(mine.get(), "c", GSHM_NO_MAP) != 0) return 8;
        gshm_disconnect(client_.release());
        return 0;
    });
    EXPECT_EQ(result, 0);
    // The parent's session and leases are untouched.
    uint8_t byte = 0;
    EXPECT_EQ(gshm_copy_out(on_cuda.get(), 0, &byte, 1), 0);
    EXPECT_EQ(stat(client_.get(), "c").leases, 1u);
}

TEST_F(LibraryCalls, ASessionEndsWithItsProcessEvenIfAChildHasTheSocket) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        auto mine = connect();
        auto object = create(mine.get(), "orphan", 100, "host", GSHM_NO_MAP);
        // A grandchild made behind the library's back keeps every descriptor.
        if (syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
            [[maybe_unused]] ssize_t put = write(ready[1], "g", 1);
            sleep(30);
            _exit(0);
        }
        pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    ASSERT_EQ(open_code(client_.get(), "orphan", GSHM_NO_MAP), 0);
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually([&] { return open_code(client_.get(), "orphan", GSHM_NO_MAP) == -ENOENT; }));
    close(ready[0]);
    close(ready[1]);
}

TEST_F(LibraryCalls, ReconnectsByItself) {
    auto host = create(client_.get(), "h", 5000, "host");
    auto cuda = create(client_.get(), "c", 5000, "cuda:0");
    auto remote = create(client_.get(), "n", 5000, "cuda:0", GSHM_NO_MAP);
    ASSERT_EQ(gshm_fill(host.get(), 0, 5000, 1), 0);
    ASSERT_EQ(gshm_fill(cuda.get(), 0, 5000, 2), 0);
    kill();
    EXPECT_NE(gshm_ping(client_.get()), 0);
    EXPECT_NE(std::string(gshm_last_error()).find("gshmd is not running"), std::string::npos) << gshm_last_error();
    // What is mapped stays mapped, daemon or not.
    uint8_t byte = 0;
    EXPECT_EQ(gshm_copy_out(host.get(), 4999, &byte, 1), 0);
    EXPECT_EQ(byte, 1);
    EXPECT_EQ(gshm_copy_out(cuda.get(), 4999, &byte, 1), 0);
    EXPECT_EQ(byte, 2);
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda"}, daemon_env())) << log();
    EXPECT_EQ(gshm_ping(client_.get()), 0) << gshm_last_error();
    EXPECT_EQ(gshm_copy_out(remote.get(), 0, &byte, 1), -ESTALE) << gshm_last_error();
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    EXPECT_NE(gshm_stat_object(remote.get(), &info), 0);
    EXPECT_EQ(gshm_copy_out(host.get(), 0, &byte, 1), 0);
    host.reset();
    cuda.reset();
    auto again = create(client_.get(), "h", 100, "host");
    EXPECT_TRUE(again);
}

TEST_F(LibraryCalls, AVanishingDaemonIsNoHang) {
    std::atomic<int> code{0};
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    std::string folder = dir();
    options.dir = folder.c_str();
    options.timeout_ms = 0;
    gshm_client* raw = nullptr;
    ASSERT_EQ(gshm_connect(&options, &raw), 0);
    Client patient(raw);
    std::thread waiter([&] { code = gshm_wait(patient.get(), "never", GSHM_WAIT_EXISTS, -1, nullptr); });
    std::this_thread::sleep_for(30ms);
    kill();
    waiter.join();
    EXPECT_NE(code, 0);
    EXPECT_EQ(gshm_connect(&options, &raw), -ECONNREFUSED);
}

TEST_F(LibraryCalls, AFailedDeviceIsRefusedAndTheOthersGoOn) {
    auto before = create(client_.get(), "f/before", 100, "cuda:1", GSHM_NO_MAP);
    { std::ofstream(scratch() + "/faults") << "cuMemCreate@1:*:719"; }
    auto wanted = spec("f/x", 4 << 20, "cuda:1", GSHM_NO_MAP);
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -EIO) << gshm_last_error();
    EXPECT_EQ(gshm_create(client_.get(), &wanted, &object), -ENODEV) << gshm_last_error();
    EXPECT_EQ(open_code(client_.get(), "f/before", GSHM_NO_MAP), -ENODEV);
    EXPECT_EQ(device(client_.get(), "cuda:1").failed, 1u);
    EXPECT_NE(std::string(device(client_.get(), "cuda:1").failure).find("LAUNCH_FAILED"), std::string::npos);
    EXPECT_EQ(device(client_.get(), "cuda:0").failed, 0u);
    EXPECT_TRUE(create(client_.get(), "f/zero", 100, "cuda:0"));
    EXPECT_TRUE(create(client_.get(), "f/host", 100, "host"));
}

TEST_F(LibraryCalls, AGpuIsItsUuidNotItsOrdinal) {
    auto object = create(client_.get(), "u", 100, "cuda:1");
    ASSERT_EQ(gshm_fill(object.get(), 0, 100, 0x31), 0);
    ASSERT_EQ(gshm_seal(object.get()), 0);
    // The same GPU under another number, and a process that cannot see it.
    auto mapped = ChildProcess();
    auto env = fake_cuda_env(2);
    env.push_back("CUDA_VISIBLE_DEVICES=1");
    std::vector<std::string> reader = {bin("weights_reader"), "--dir", dir(), "--name", "u"};
    auto blind = fake_cuda_env(2);
    blind.push_back("CUDA_VISIBLE_DEVICES=0");
    ChildProcess child;
    ASSERT_TRUE(child.spawn(reader, blind));
    auto result = child.finish();
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE((result.out + result.err).find("CUDA_VISIBLE_DEVICES"), std::string::npos) << result.out << result.err;
    ASSERT_TRUE(mapped.spawn(reader, env));
    result = mapped.finish();
    EXPECT_EQ((result.out + result.err).find("CUDA_VISIBLE_DEVICES"), std::string::npos) << result.out << result.err;
}

TEST_F(LibraryCalls, PeersReachMappedMemory) {
    auto object = create(client_.get(), "p", 100, "cuda:0");
    EXPECT_EQ(gshm_map_peer(object.get(), "cuda:1"), 0) << gshm_last_error();
    EXPECT_EQ(gshm_map_peer(object.get(), "cuda:7"), -ENODEV);
    auto on_host = create(client_.get(), "q", 100, "host");
    EXPECT_EQ(gshm_map_peer(on_host.get(), "cuda:1"), -EOPNOTSUPP);
    auto unmapped = open(client_.get(), "p", GSHM_NO_MAP);
    EXPECT_EQ(gshm_map_peer(unmapped.get(), "cuda:1"), -EINVAL);
}

TEST_F(LibraryCalls, ObjectsOutliveTheirClientHandle) {
    auto object = create(client_.get(), "o", 100, "host", GSHM_KEEP);
    client_.reset();
    EXPECT_EQ(gshm_fill(object.get(), 0, 100, 3), 0);
    EXPECT_EQ(gshm_seal(object.get()), 0);
    auto other = connect();
    EXPECT_EQ(stat(other.get(), "o").state, static_cast<uint32_t>(GSHM_STATE_SEALED));
}


}  // namespace
}  // namespace gshm::test

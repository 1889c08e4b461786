// Calls, access rights and failures of the library, with a real daemon.
#include "library_fixture.h"

namespace gshm::core::test {
namespace {

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
    // Two waits on one connection, which is also used for other calls.
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
    std::string large((64 << 10) + 1, 'l');
    EXPECT_EQ(gshm_set_attribute(client_.get(), "t", "large", large.data(), 64 << 10), 0) << gshm_last_error();
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
    ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), 1000, objects.data(), status.data()), 0)
        << gshm_last_error();
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
            if (write(fd, "x", 1) != -1) return 5;  // a reader's descriptor is read-only
            if (::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR) >= 0) return 6;
            if (gshm_unlink(mine.get(), "public/readable") != -EACCES) return 7;
            if (gshm_unlink(mine.get(), "secret") != -EPERM) return 8;
            if (gshm_seal_name(mine.get(), "public/readable") != -EACCES) return 9;
            if (gshm_set_attribute(mine.get(), "public/readable", "k", "v", 1) != -EACCES) return 10;
            if (gshm_shutdown(mine.get(), 0) != -EPERM) return 11;
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
    // The session and the leases of the parent are unchanged.
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
        // A grandchild that the library does not notice keeps every descriptor.
        auto grandchild = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
        if (grandchild > 0) {
            [[maybe_unused]] ssize_t put = write(ready[1], &grandchild, sizeof grandchild);
        }
        for (;;) pause();
    }
    pid_t grandchild = 0;
    ASSERT_EQ(read(ready[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
    ASSERT_EQ(open_code(client_.get(), "orphan", GSHM_NO_MAP), 0);
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually([&] { return open_code(client_.get(), "orphan", GSHM_NO_MAP) == -ENOENT; }));
    ::kill(grandchild, SIGKILL);
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
    // Mappings stay valid, with or without a daemon.
    uint8_t byte = 0;
    EXPECT_EQ(gshm_copy_out(host.get(), 4999, &byte, 1), 0);
    EXPECT_EQ(byte, 1);
    EXPECT_EQ(gshm_copy_out(cuda.get(), 4999, &byte, 1), 0);
    EXPECT_EQ(byte, 2);
    ASSERT_TRUE(start({"--device", "host:256M", "--device", "cuda", "--discard"}, daemon_env())) << log();
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
}  // namespace gshm::core::test

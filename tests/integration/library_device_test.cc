// Requirements on every device, through the library and a real daemon.
#include "library_fixture.h"

namespace gshm::core::test {
namespace {

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
    // More extents than one message can carry descriptors, and more than this process may have open at once. (The fake
    // driver, unlike the real one, keeps a descriptor for each import.)
    rlimit old = {};
    getrlimit(RLIMIT_NOFILE, &old);
    rlimit low = {std::string(where()) == "host" ? 300 : old.rlim_cur, old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    constexpr size_t kCount = 450;
    std::vector<std::string> names;
    std::vector<gshm_create_spec> specs;
    uint64_t size = std::string(where()) == "host" ? 100 : 4096;
    for (size_t i = 0; i < kCount; ++i) names.push_back("d" + std::to_string(i));
    for (const auto& name : names)
        specs.push_back(spec(name.c_str(), size, where(), GSHM_DEDICATED | GSHM_NO_MAP | GSHM_KEEP));
    std::vector<gshm_object*> objects(kCount);
    std::vector<int> status(kCount);
    auto there = device(client_.get(), where());
    bool fits = kCount * there.granularity_bytes <= there.capacity_bytes;
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

TEST_P(LibraryOnDevice, WhatWasSealedIsExportedForReading) {
    auto object = create(client_.get(), "s", 3000, where());
    ASSERT_EQ(gshm_seal(object.get()), 0);
    int fd = -1;
    ASSERT_EQ(gshm_export_fd(object.get(), &fd, nullptr), 0) << gshm_last_error();
    if (std::string(where()) == "host") {
        EXPECT_EQ(write(fd, "x", 1), -1);
    }
    close(fd);
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
        // A forked child must not use the CUDA of its parent: the daemon does the work.
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

}  // namespace
}  // namespace gshm::core::test

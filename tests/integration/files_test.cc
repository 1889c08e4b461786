// Whole files into objects and back: put_file, get_file, and ranges.
#include <sys/wait.h>
#include <thread>

#include "integration/ring_fixture.h"
#include "support/silent_file.h"

namespace gshm::core::test {
namespace {

class FilesTest : public RingTest {
protected:
    gshm_create_spec wanted(const char* name, uint32_t flags = 0) { return spec(name, 0, where(), flags); }
    int put(const std::string& file, const char* name, uint32_t flags = 0) {
        const auto spec = wanted(name, flags);
        return gshm_put_file(client_.get(), file_path(file).c_str(), &spec, nullptr, &info_);
    }
    int get(const char* name, const std::string& file) {
        return gshm_get_file(client_.get(), name, file_path(file).c_str(), nullptr, &info_);
    }
    std::string read(const std::string& file) {
        std::ifstream in(file_path(file), std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    size_t files_in_scratch() {
        size_t count = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch())) ++count;
        return count;
    }

    // The rings of this process.
    static size_t rings() {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            count += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("/memfd:gshm-ring");
        }
        return count;
    }

    gshm_transfer_info info_ = {sizeof info_, 0, 0, 0};
};

TEST_P(FilesTest, ThereAndBack) {
    for (uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{70'001}, 33 * kMiB + 5}) {
        const std::string bytes = pattern(size, size);
        make_file("f", bytes);
        const std::string name = "models/o" + std::to_string(size);
        ASSERT_EQ(put("f", name.c_str()), 0) << gshm_last_error();
        EXPECT_EQ(info_.bytes, size);
        if (size > 0) {
            EXPECT_NE(info_.path, 0u);
            EXPECT_EQ((info_.path & GSHM_PATH_STAGED) != 0, std::string(where()) != "host");
        }
        EXPECT_EQ(stat(client_.get(), name.c_str()).state, static_cast<uint32_t>(GSHM_STATE_SEALED));
        ASSERT_EQ(get(name.c_str(), "g"), 0) << gshm_last_error();
        EXPECT_EQ(info_.bytes, size);
        EXPECT_TRUE(read("g") == bytes) << size;
    }
}

TEST_P(FilesTest, ReplacingAndNotReplacing) {
    make_file("f", "first");
    make_file("g", "the second");
    ASSERT_EQ(put("f", "o"), 0);
    auto held = open(client_.get(), "o", GSHM_NO_MAP);
    EXPECT_EQ(put("g", "o"), -EEXIST);
    ASSERT_EQ(put("g", "o", GSHM_REPLACE), 0) << gshm_last_error();
    EXPECT_EQ(bytes_of(held.get()), "first");
    EXPECT_EQ(bytes_of(open(client_.get(), "o", GSHM_NO_MAP).get()), "the second");
    ASSERT_EQ(get("o", "f"), 0);
    EXPECT_EQ(read("f"), "the second");
}

TEST_P(FilesTest, WhatFailsLeavesNothing) {
    make_file("f", pattern(20 * kMiB, 1));
    const size_t files = files_in_scratch();
    EXPECT_EQ(put("none", "o"), -ENOENT);
    EXPECT_EQ(get("none", "g"), -ENOENT);
    auto spec_of_directory = wanted("o");
    EXPECT_EQ(gshm_put_file(client_.get(), scratch().c_str(), &spec_of_directory, nullptr, nullptr), -EINVAL);
    ASSERT_EQ(mkfifo(file_path("fifo").c_str(), 0600), 0);
    EXPECT_EQ(put("fifo", "o"), -EINVAL);
    unlink(file_path("fifo").c_str());
    // Cancelled by the progress callback.
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    uint64_t calls = 0;
    options.context = &calls;
    options.progress = [](void* context, uint64_t, uint64_t) { return ++*static_cast<uint64_t*>(context) > 1 ? 1 : 0; };
    for (uint32_t flags : {0u, uint32_t{GSHM_KEEP}, uint32_t{GSHM_REPLACE}}) {
        calls = 0;
        const auto stopped = wanted("stopped", flags);
        EXPECT_EQ(gshm_put_file(client_.get(), file_path("f").c_str(), &stopped, &options, nullptr), -ECANCELED);
        EXPECT_TRUE(eventually([&] { return open_code(client_.get(), "stopped") == -ENOENT; })) << flags;
    }
    ASSERT_EQ(put("f", "o"), 0);
    calls = 0;
    EXPECT_EQ(gshm_get_file(client_.get(), "o", file_path("g").c_str(), &options, nullptr), -ECANCELED);
    EXPECT_EQ(get("o", "no/such/folder"), -ENOENT);
    EXPECT_EQ(gshm_get_file(client_.get(), "o", scratch().c_str(), nullptr, nullptr), -EISDIR);
    EXPECT_EQ(gshm_get_file(client_.get(), "o", "/dev/null", nullptr, nullptr), -EINVAL);
    EXPECT_EQ(files_in_scratch(), files) << "something was left behind";
}

// A process that takes the name meanwhile keeps it, for any result of the put.
TEST_P(FilesTest, ANameIsTakenInTheEndAndNeverFromAnother) {
    make_file("f", pattern(20 * kMiB, 1));
    struct Other {
        gshm_client* client;
        Object object;
        int answer;
        int seen = 0;
        uint64_t calls = 0;
    };
    auto other_client = connect();
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.progress = [](void* context, uint64_t, uint64_t) {
        auto& other = *static_cast<Other*>(context);
        if (++other.calls == 1) {
            other.seen = open_code(other.client, "d/taken");
            auto wanted = spec("d/taken", 100, "host", GSHM_NO_MAP);
            gshm_object* made = nullptr;
            EXPECT_EQ(gshm_create(other.client, &wanted, &made), 0) << gshm_last_error();
            other.object.reset(made);
        }
        return other.answer;
    };
    for (uint32_t flags : {0u, uint32_t{GSHM_KEEP}}) {
        for (int answer : {0, 1}) {
            Other other{other_client.get(), nullptr, answer};
            options.context = &other;
            const auto put = wanted("d/taken", flags);
            EXPECT_EQ(gshm_put_file(client_.get(), file_path("f").c_str(), &put, &options, nullptr),
                      answer == 0 ? -EEXIST : -ECANCELED);
            EXPECT_EQ(other.seen, -ENOENT) << "it was seen before it was whole";
            ASSERT_NE(other.object, nullptr);
            EXPECT_EQ(stat(client_.get(), "d/taken").id, gshm_id(other.object.get()));
            ASSERT_EQ(gshm_unlink(other_client.get(), "d/taken"), 0) << gshm_last_error();
        }
    }
    EXPECT_EQ(put("f", "d/taken", GSHM_KEEP | GSHM_REPLACE), 0) << gshm_last_error();
    EXPECT_EQ(put("f", "d"), -EEXIST);
    EXPECT_EQ(put("f", "d/taken/below"), -ENOTDIR);
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).unlinked_bytes == 0; }));
}

// A cancelled transfer ends even if the file does not respond.
TEST_P(FilesTest, AFileThatDoesNotAnswer) {
    auto hung = SilentFile::create(file_path("hung"), 40 * kMiB);
    if (!hung) GTEST_SKIP() << "mounting is not permitted here";
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.context = hung.get();
    options.progress = [](void* context, uint64_t, uint64_t) {
        return static_cast<SilentFile*>(context)->ignored() > 0 ? 1 : 0;
    };
    const auto spec = wanted("o");
    EXPECT_EQ(gshm_put_file(client_.get(), file_path("hung").c_str(), &spec, &options, nullptr), -ECANCELED);
    EXPECT_EQ(open_code(client_.get(), "o"), -ENOENT);
    hung.reset();
    EXPECT_TRUE(eventually([&] { return device(client_.get(), where()).unlinked_bytes == 0; }));
}

TEST_P(FilesTest, AFullDeviceIsSaidSo) {
    const int fd = make_file("large", "");
    ASSERT_EQ(ftruncate(fd, off_t{1} << 42), 0);
    EXPECT_EQ(put("large", "o"), -ENOSPC) << gshm_last_error();
    EXPECT_EQ(open_code(client_.get(), "o"), -ENOENT);
}

TEST_P(FilesTest, OneRingServesOneFileAfterTheOther) {
    const size_t before = rings();
    std::string bytes;
    auto once_more = [&](const std::string& name) {
        bytes = pattern(10'000, bytes.size() + name.size());
        make_file("f", bytes);
        ASSERT_EQ(put("f", name.c_str()), 0) << gshm_last_error();
        ASSERT_EQ(get(name.c_str(), "g"), 0) << gshm_last_error();
        EXPECT_TRUE(read("g") == bytes);
    };
    for (int i = 0; i < 5; ++i) once_more("o" + std::to_string(i));
    EXPECT_EQ(rings(), before + 1);
    // The next gshmd does not know the ring.
    kill_it();
    once_more("after");
    EXPECT_EQ(rings(), before + 1);
    // A forked child does not share it.
    const pid_t child = fork();
    if (child == 0) {
        const auto spec = wanted("child");
        int code = gshm_put_file(client_.get(), file_path("f").c_str(), &spec, nullptr, nullptr);
        if (code == -ECHILD) {
            auto mine = connect(kPatience);
            code = gshm_put_file(mine.get(), file_path("f").c_str(), &spec, nullptr, nullptr);
        } else {
            code = 1;
        }
        _exit(code == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    once_more("then");
    EXPECT_EQ(bytes_of(open(client_.get(), "child", GSHM_NO_MAP).get()).size(), bytes.size());
    // Each thread has one, and all end with the client.
    std::vector<std::thread> threads;
    for (int i = 0; i < 12; ++i) {
        threads.emplace_back([&, i] {
            for (int j = 0; j < 10; ++j) {
                const std::string name = "t/" + std::to_string(i) + "/" + std::to_string(j);
                const auto spec = wanted(name.c_str());
                EXPECT_EQ(gshm_put_file(client_.get(), file_path("f").c_str(), &spec, nullptr, nullptr), 0)
                    << gshm_last_error();
                EXPECT_TRUE(bytes_of(open(client_.get(), name.c_str(), GSHM_NO_MAP).get()) == bytes);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_LE(rings(), before + 8);
    client_.reset();
    EXPECT_EQ(rings(), before);
    client_ = connect(kPatience);
}

TEST_P(FilesTest, RangesAndTheirProgress) {
    const std::string bytes = pattern(50 * kMiB, 1);
    const int fd = make_file("f", bytes);
    auto object = create(client_.get(), "o", 50 * kMiB, where(), GSHM_NO_MAP);
    struct Seen {
        uint64_t last = 0;
        uint64_t total = 0;
        bool backwards = false;
    } seen;
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.context = &seen;
    options.progress = [](void* context, uint64_t done, uint64_t total) {
        auto& seen = *static_cast<Seen*>(context);
        seen.backwards = seen.backwards || done < seen.last;
        seen.last = done;
        seen.total = total;
        return 0;
    };
    const uint64_t length = 50 * kMiB - 300;
    ASSERT_EQ(gshm_read_file(object.get(), 100, fd, 200, length, &options, &info_), 0) << gshm_last_error();
    EXPECT_EQ(seen.last, length);
    EXPECT_EQ(seen.total, length);
    EXPECT_FALSE(seen.backwards);
    EXPECT_GT(info_.duration_ns, 0u);
    EXPECT_TRUE(bytes_of(object.get()).substr(100, length) == bytes.substr(200, length));
    const int out = make_file("g", "");
    ASSERT_EQ(gshm_write_file(object.get(), 100, out, 7, length, nullptr, &info_), 0) << gshm_last_error();
    EXPECT_TRUE(contents(out).substr(7) == bytes.substr(200, length));
    EXPECT_EQ(gshm_read_file(object.get(), 0, fd, kMiB, 50 * kMiB, nullptr, nullptr), -ENODATA);
    EXPECT_EQ(gshm_read_file(object.get(), 1, fd, 0, 50 * kMiB, nullptr, nullptr), -EINVAL);
    EXPECT_EQ(gshm_read_file(object.get(), 0, -1, 0, 1, nullptr, nullptr), -EBADF);
    EXPECT_EQ(gshm_read_file(nullptr, 0, fd, 0, 1, nullptr, nullptr), -EINVAL);
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(gshm_write_file(object.get(), 0, full, 0, 100, nullptr, nullptr), -EINVAL) << "no regular file";
    ::close(full);
}

TEST_P(FilesTest, FromDescriptors) {
    const std::string bytes = pattern(9 * kMiB + 3, 5);
    const int fd = make_file("f", bytes);
    ASSERT_EQ(lseek(fd, 1000, SEEK_SET), 1000);
    auto put = [&](int from, gshm_create_spec spec, uint32_t flags = 0) {
        gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
        options.flags = flags;
        return gshm_put_fd(client_.get(), from, &spec, &options, &info_);
    };
    // A file is read from its position, which does not change.
    ASSERT_EQ(put(fd, wanted("file"), GSHM_TRANSFER_VERIFY), 0) << gshm_last_error();
    EXPECT_EQ(info_.bytes, bytes.size() - 1000);
    EXPECT_EQ(info_.path & GSHM_PATH_STREAM, 0u);
    EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 1000);
    EXPECT_TRUE(bytes_of(open(client_.get(), "file", GSHM_NO_MAP).get()) == bytes.substr(1000));

    // Streams of unknown and of known length. The last ones are longer or shorter than announced.
    struct Stream {
        uint64_t said;
        size_t brings;
        uint32_t flags;
        int code;
    };
    for (const auto& [said, brings, flags, code] : {Stream{0, bytes.size(), 0, 0},
                                                    {0, 0, 0, 0},
                                                    {bytes.size(), bytes.size(), 0, 0},
                                                    {0, 0, GSHM_EMPTY, 0},
                                                    {10, 11, 0, -EFBIG},
                                                    {10, 9, 0, -ENODATA},
                                                    {0, 1, GSHM_EMPTY, -EFBIG}}) {
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
        std::thread writer([&] {
            for (size_t done = 0; done < brings;) {
                const ssize_t count = ::write(ends[1], bytes.data() + done, brings - done);
                if (count < 0) break;
                done += static_cast<size_t>(count);
            }
            ::close(ends[1]);
        });
        auto spec = wanted("stream", flags);
        spec.size_bytes = said;
        EXPECT_EQ(put(ends[0], spec, GSHM_TRANSFER_VERIFY), code) << said << " " << brings << ": " << gshm_last_error();
        writer.join();
        ::close(ends[0]);
        if (code != 0) {
            EXPECT_EQ(open_code(client_.get(), "stream"), -ENOENT);
            continue;
        }
        EXPECT_EQ(info_.bytes, brings);
        EXPECT_EQ(info_.path, brings > 0 ? uint32_t{GSHM_PATH_STREAM} : 0u);
        EXPECT_EQ(stat(client_.get(), "stream").state, static_cast<uint32_t>(GSHM_STATE_SEALED));
        EXPECT_TRUE(bytes_of(open(client_.get(), "stream", GSHM_NO_MAP).get()) == bytes.substr(0, brings));
        ASSERT_EQ(gshm_unlink(client_.get(), "stream"), 0);
    }
    EXPECT_EQ(put(-1, wanted("o")), -EBADF);
    const int folder = ::open(scratch().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT_EQ(put(folder, wanted("o")), -EINVAL);
    ::close(folder);
    EXPECT_EQ(put(fd, wanted("file")), -EEXIST);
    EXPECT_EQ(put(fd, wanted("o"), 0x80), -EINVAL) << "an unknown flag";
}

// A byte counts half when it is copied and whole when it is compared. A difference leaves neither object nor file.
TEST_P(FilesTest, VerifiedBeforeItIsNamed) {
    const std::string bytes = pattern(20 * kMiB, 6);
    const int fd = make_file("f", bytes);
    struct Seen {
        int fd;
        uint64_t last = 0;
        bool backwards = false;
        bool spoil = false;
    } seen{fd};
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    options.flags = GSHM_TRANSFER_VERIFY;
    options.context = &seen;
    options.progress = [](void* context, uint64_t done, uint64_t total) {
        auto& seen = *static_cast<Seen*>(context);
        seen.backwards = seen.backwards || done < seen.last || done > total;
        seen.last = done;
        // All bytes are copied, and none is compared yet.
        if (seen.spoil && done == total / 2) {
            EXPECT_EQ(::pwrite(seen.fd, "other", 5, 12 * kMiB), 5);
        }
        return 0;
    };
    const auto spec = wanted("o");
    ASSERT_EQ(gshm_put_file(client_.get(), file_path("f").c_str(), &spec, &options, &info_), 0) << gshm_last_error();
    EXPECT_EQ(seen.last, bytes.size());
    EXPECT_FALSE(seen.backwards);
    seen.last = 0;
    ASSERT_EQ(gshm_get_file(client_.get(), "o", file_path("g").c_str(), &options, &info_), 0) << gshm_last_error();
    EXPECT_TRUE(read("g") == bytes);
    EXPECT_EQ(seen.last, bytes.size());
    EXPECT_FALSE(seen.backwards);

    seen.spoil = true;
    seen.last = 0;
    const auto second = wanted("p");
    EXPECT_EQ(gshm_put_file(client_.get(), file_path("f").c_str(), &second, &options, nullptr), -EBADMSG);
    EXPECT_NE(std::string(gshm_last_error()).find("differ at byte 12582912"), std::string::npos) << gshm_last_error();
    EXPECT_EQ(open_code(client_.get(), "p"), -ENOENT);
    EXPECT_EQ(gshm_read_file(open(client_.get(), "o", GSHM_NO_MAP).get(), 0, fd, 0, 1, &options, nullptr), -EINVAL)
        << "a range is not verified";
}

TEST_P(FilesTest, PublishingNeverTakesANameFromAnother) {
    auto other = create(client_.get(), "d/o", 100, where(), GSHM_NO_MAP);
    auto mine = create(client_.get(), "d/o", 200, where(), GSHM_NO_MAP | GSHM_UNNAMED);
    EXPECT_EQ(gshm_publish(mine.get(), "d/o", 0), -EEXIST);
    EXPECT_EQ(stat(client_.get(), "d/o").id, gshm_id(other.get()));
    EXPECT_EQ(gshm_fill(mine.get(), 0, 200, 7), 0) << "it is as it was: " << gshm_last_error();
    EXPECT_EQ(gshm_publish(mine.get(), "d/p", 1u << 20), -EINVAL);
    ASSERT_EQ(gshm_publish(mine.get(), "d/p", 0), 0) << gshm_last_error();
    EXPECT_EQ(stat(client_.get(), "d/p").state, static_cast<uint32_t>(GSHM_STATE_SEALED));
    auto third = create(client_.get(), "d/o", 300, where(), GSHM_NO_MAP | GSHM_UNNAMED);
    ASSERT_EQ(gshm_publish(third.get(), "d/o", GSHM_REPLACE), 0) << gshm_last_error();
    EXPECT_EQ(stat(client_.get(), "d/o").id, gshm_id(third.get()));
    EXPECT_EQ(gshm_publish(nullptr, "d/q", 0), -EINVAL);
}

TEST_P(FilesTest, MemoryWithoutADaemon) {
    const std::string bytes = pattern(20 * kMiB + 3, 8);
    const int fd = make_file("f", bytes);
    gshm_object* handle = nullptr;
    ASSERT_EQ(gshm_allocate(where(), bytes.size(), 0, &handle), 0) << gshm_last_error();
    Object mine(handle);
    ASSERT_EQ(gshm_read_file(handle, 0, fd, 0, bytes.size(), nullptr, &info_), 0) << gshm_last_error();
    EXPECT_TRUE(bytes_of(handle) == bytes);
    const int out = make_file("g", "");
    ASSERT_EQ(gshm_write_file(handle, 0, out, 0, bytes.size(), nullptr, nullptr), 0) << gshm_last_error();
    EXPECT_TRUE(contents(out) == bytes);
}

class StagingOfTheDaemon : public LibraryTest {
protected:
    static size_t count(const std::string& text, const std::string& part) {
        size_t found = 0;
        for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
        return found;
    }
    int put(const char* name, const char* where) {
        std::ofstream(scratch() + "/f") << "some bytes";
        const auto wanted = spec(name, 0, where);
        return gshm_put_file(client_.get(), (scratch() + "/f").c_str(), &wanted, nullptr, nullptr);
    }
};

TEST_F(StagingOfTheDaemon, IsPinnedWhenThatWorksAgain) {
    { std::ofstream(scratch() + "/faults") << "cuMemHostRegister:*:2"; }
    start_all();
    EXPECT_EQ(put("a", "cuda:0"), 0) << gshm_last_error();
    EXPECT_EQ(count(log(), "cannot be pinned, copies"), 1u) << log();
    client_ = connect();
    EXPECT_EQ(put("b", "cuda:0"), 0) << gshm_last_error();
    EXPECT_EQ(count(log(), "pinned after all"), 0u) << log();
    EXPECT_EQ(count(log(), "cannot be pinned, copies"), 1u) << "it is said once: " << log();
    // By rename, as the driver requires.
    { std::ofstream(scratch() + "/none") << ""; }
    std::filesystem::rename(scratch() + "/none", scratch() + "/faults");
    client_ = connect();
    EXPECT_EQ(put("c", "cuda:0"), 0) << gshm_last_error();
    EXPECT_TRUE(eventually([&] { return count(log(), "pinned after all") == 1; })) << log();
}

// More memory than any machine has.
TEST_F(StagingOfTheDaemon, ThatIsNotToBeHadConcernsGpusAlone) {
    ASSERT_TRUE(start({"--device", "host:64M", "--device", "cuda", "--staging", "512T"}, daemon_env())) << log();
    client_ = connect();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(put("g", "cuda:0"), -ENOMEM) << gshm_last_error();
        EXPECT_EQ(put(("h" + std::to_string(i)).c_str(), "host"), 0) << gshm_last_error();
    }
    EXPECT_EQ(count(log(), "no files into GPUs' memory"), 1u) << log();
}

INSTANTIATE_TEST_SUITE_P(Devices, FilesTest, ::testing::Values("host", "cuda:0"), device_of);

}  // namespace
}  // namespace gshm::core::test

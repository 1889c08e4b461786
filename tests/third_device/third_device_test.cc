// Everything over a kind of device that gshm does not have: the gshmd and the libgshm of this build, linked with
// file_device.cc and otherwise as they are.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <thread>
#include <vineyard.h>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include <gshm/fence.hpp>
#include <gshm/mirror.hpp>
#include <gshm/pool.hpp>
#include <gshm/ring.hpp>

namespace gshm::core::test {
namespace {

namespace hpp = ::gshm::v0;
using Bytes = std::vector<std::byte>;

const bool own_programs = setenv("GSHM_BIN", build_path("tests/third").c_str(), 1) == 0;

Bytes pattern(size_t bytes, unsigned seed) {
    Bytes data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
    return data;
}
Bytes content(hpp::Object& object) {
    Bytes data(object.size());
    auto copied = object.copy_out(data);
    EXPECT_TRUE(copied) << copied.error().message;
    return data;
}

class ThirdDevice : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override {
        ASSERT_TRUE(own_programs);
        folder_ = scratch() + "/nvme";
        std::filesystem::create_directory(folder_);
        ASSERT_TRUE(start(options())) << log();
        client_ = connect();
    }
    std::vector<std::string> options() const {
        return {"--device", "file:" + folder_ + ":64M", "--device", "host:64M"};
    }
    hpp::Client connect() { return hpp::Client::connect({.dir = dir()}).value(); }
    hpp::Object make(const std::string& name, uint64_t bytes, unsigned seed) {
        auto object = client_.create({.name = name, .size_bytes = bytes, .device = kName}).value();
        object.copy_in(pattern(bytes, seed)).value();
        return object;
    }
    hpp::DeviceInfo device() {
        for (const auto& info : client_.devices().value()) {
            if (std::string_view(info.name) == kName) return info;
        }
        ADD_FAILURE() << "no " << kName;
        return {};
    }

    static constexpr const char* kName = "file:nvme";
    std::string folder_;
    hpp::Client client_;
};

TEST_F(ThirdDevice, IsThereAsAnyOther) {
    const auto info = device();
    EXPECT_EQ(info.capacity_bytes, uint64_t{64} << 20);
    EXPECT_EQ(info.failed, 0u);
    EXPECT_TRUE(std::string_view(info.uuid).starts_with("FILE-"));
    EXPECT_NE(run_cli({"devices"}).out.find("files in a folder"), std::string::npos);
    auto object = make("o", 3 << 20, 1);
    EXPECT_EQ(object.device(), kName);
    EXPECT_FALSE(object.is_host());
    EXPECT_GE(device().used_bytes, uint64_t{3} << 20);
    EXPECT_EQ(client_.create({.name = "large", .size_bytes = uint64_t{65} << 20, .device = kName}).error().code,
              ENOSPC);
    // A pointer that the CPU must not follow; the kernel says so before we fault.
    ASSERT_NE(object.data(), nullptr);
    const int null = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(::read(null, object.data(), 1), -1);
    EXPECT_EQ(errno, EFAULT);
    ::close(null);
}

TEST_F(ThirdDevice, ObjectsGoFromClientToClient) {
    for (uint64_t bytes : {uint64_t{100}, uint64_t{3} << 20}) {  // in a slab, and in a dedicated extent
        const std::string name = "o" + std::to_string(bytes);
        auto object = make(name, bytes, 2);
        ASSERT_TRUE(object.fill(9, 10, 20));
        ASSERT_TRUE(object.seal());
        auto expected = pattern(bytes, 2);
        std::fill_n(expected.begin() + 10, 20, std::byte{9});
        auto other = connect();
        for (bool map : {true, false}) {
            auto reader = other.open(name, {.sealed_only = true, .map = map}).value();
            EXPECT_EQ(content(reader), expected);
            EXPECT_EQ(reader.fill(1).error().code, EACCES);
        }
        auto info = client_.stat(name).value();
        EXPECT_EQ(std::string_view(info.device), kName);
    }
}

TEST_F(ThirdDevice, FreedMemoryIsFreeAndZero) {
    for (int round = 0; round < 3; ++round) {
        auto object = client_.create({.name = "o", .size_bytes = uint64_t{40} << 20, .device = kName}).value();
        EXPECT_EQ(content(object), Bytes(40 << 20));
        ASSERT_TRUE(object.fill(0xEE));
        object.close();
        ASSERT_TRUE(client_.unlink("o"));
    }
}

TEST_F(ThirdDevice, Mirrors) {
    auto object = make("o", 100000, 3);
    {
        auto mirror = hpp::Mirror::create(object, {.offset_bytes = 1000, .size_bytes = 5000, .write = true}).value();
        const auto all = pattern(100000, 3);
        EXPECT_TRUE(std::ranges::equal(mirror.bytes(), std::span(all).subspan(1000, 5000)));
        std::ranges::fill(mirror.writable(10, 20).value(), std::byte{7});
        EXPECT_EQ(content(object), all) << "a copy, until it is flushed";
    }
    auto expected = pattern(100000, 3);
    std::fill_n(expected.begin() + 1010, 20, std::byte{7});
    EXPECT_EQ(content(object), expected);
    ASSERT_TRUE(object.seal());
    EXPECT_EQ(hpp::Mirror::create(object, {.write = true}).error().code, EPERM);
    EXPECT_TRUE(std::ranges::equal(hpp::Mirror::create(object).value().bytes(), expected));
}

TEST_F(ThirdDevice, Fences) {
    auto object = make("o", 4096, 3);
    auto fence = hpp::Fence::open(object, {.write = true}).value();
    auto reader = hpp::Fence::open(object).value();
    EXPECT_EQ(reader.wait(nullptr, 1, std::chrono::milliseconds(0)).error().code, ETIMEDOUT);
    EXPECT_EQ(fence.publish().value(), 1u);
    EXPECT_EQ(reader.wait().value(), 1u);
    EXPECT_TRUE(reader.check(1));
}

TEST_F(ThirdDevice, Pools) {
    auto pool = hpp::Pool::create(client_, {.device = kName, .slab_bytes = 4 << 20}).value();
    void* memory = pool.allocate(100000).value();
    void* second = pool.allocate(6 << 20).value();
    const auto there = pool.locate(memory).value();
    EXPECT_EQ(std::string_view(there.device), kName);
    auto writer = client_.open_id(there.id, {.write = true}).value();
    EXPECT_EQ(writer.data_as<std::byte>() + there.offset, memory) << "mapped once";
    writer.copy_in(pattern(100000, 5), there.offset).value();
    auto other = connect();
    auto reader = other.open_id(there.id).value();
    Bytes data(100000);
    ASSERT_TRUE(reader.copy_out(data, there.offset));
    EXPECT_EQ(data, pattern(100000, 5));
    EXPECT_EQ(pool.allocate(uint64_t{60} << 20).error().code, ENOSPC);
    ASSERT_TRUE(pool.deallocate(memory, 100000));
    EXPECT_EQ(pool.allocate(100000, reinterpret_cast<void*>(4096)).value(), memory) << "there are no streams here";
    EXPECT_EQ(pool.deallocate(memory, 99).error().code, EINVAL);
    ASSERT_TRUE(pool.deallocate(memory, 100000));
    ASSERT_TRUE(pool.deallocate(second, 6 << 20));
    reader = {};
    writer = {};
    ASSERT_TRUE(pool.trim());
    while (device().object_bytes > 0) std::this_thread::yield();  // the other client's release has no reply
}

// This kind works after fork(), so the memory for mirrors must be the child's own: the parent's is not mapped there.
TEST_F(ThirdDevice, AForkedChildMakesMirrorsOfItsOwn) {
    auto object = make("o", 4 << 20, 10);
    for (uint64_t bytes : {uint64_t{4096}, uint64_t{4} << 20}) {
        hpp::Mirror::create(object, {.size_bytes = bytes}).value().close().value();  // there is something to be reused
    }
    const pid_t child = fork();
    if (child == 0) {
        auto client = connect();
        auto opened = client.open("o", {.write = true}).value();
        for (uint64_t bytes : {uint64_t{4096}, uint64_t{4} << 20}) {
            auto mirror = hpp::Mirror::create(opened, {.size_bytes = bytes, .write = true}).value();
            if (!std::ranges::equal(mirror.bytes().first(100), pattern(100, 10))) _exit(1);
            std::ranges::fill(mirror.writable(bytes - 8, 8).value(), std::byte{1});
            if (!mirror.close()) _exit(2);
        }
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    auto expected = pattern(4 << 20, 10);
    std::fill_n(expected.begin() + 4088, 8, std::byte{1});
    std::fill_n(expected.end() - 8, 8, std::byte{1});
    EXPECT_EQ(content(object), expected);
}

TEST_F(ThirdDevice, FilesAndRings) {
    constexpr size_t kBytes = (5 << 20) + 77;
    const auto data = pattern(kBytes, 4);
    const std::string path = scratch() + "/in";
    std::ofstream(path).write(reinterpret_cast<const char*>(data.data()), kBytes);
    ASSERT_TRUE(client_.put_file(path, {.name = "put", .device = kName}));
    auto put = client_.open("put").value();
    EXPECT_EQ(content(put), data);
    ASSERT_TRUE(client_.get_file("put", scratch() + "/out"));
    std::ifstream out(scratch() + "/out");
    std::string back(std::istreambuf_iterator<char>(out), {});
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(back)), data));
    // By a ring: of the daemon's objects, and of memory of this process's own on such a device.
    auto own = hpp::Object::allocate("file:" + folder_, kBytes).value();
    auto object = client_.create({.name = "ring", .size_bytes = kBytes, .device = kName}).value();
    auto ring = hpp::Ring::create(&client_, 8).value();
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const uint32_t file = ring.add_file(fd).value();
    ::close(fd);
    ASSERT_TRUE(ring.prepare_read(file, 0, hpp::Range{&object, 0, kBytes}, 1));
    ASSERT_TRUE(ring.prepare_read(file, 0, hpp::Range{&own, 0, kBytes}, 2));
    ASSERT_EQ(ring.submit().value(), 2);
    for (const auto& done : ring.wait(2).value())
        EXPECT_EQ(done.result, static_cast<int64_t>(kBytes)) << done.user_data;
    EXPECT_EQ(content(object), data);
    EXPECT_EQ(content(own), data);
    auto exported = own.export_fd().value();
    auto imported = hpp::Object::import_fd("file:" + folder_, exported.fd.get(), exported.info).value();
    EXPECT_EQ(content(imported), data);
}

TEST_F(ThirdDevice, OutlivesTheDaemon) {
    auto object = make("o", 3 << 20, 5);
    auto small = make("s", 100, 6);
    ASSERT_TRUE(small.seal());
    kill();
    ASSERT_TRUE(start({})) << log();  // with the options that it had
    EXPECT_EQ(content(object), pattern(3 << 20, 5));
    ASSERT_TRUE(object.copy_in(pattern(1000, 7)));
    auto fresh = connect();
    auto by_daemon = fresh.open("o", {.map = false}).value();
    auto expected = pattern(3 << 20, 5);
    std::ranges::copy(pattern(1000, 7), expected.begin());
    EXPECT_EQ(content(by_daemon), expected);
    ASSERT_TRUE(take_over()) << log();
    EXPECT_EQ(content(by_daemon), expected);
    auto again = fresh.open("s", {.map = false}).value();
    EXPECT_EQ(content(again), pattern(100, 6));
    EXPECT_TRUE(client_.create({.name = "new", .size_bytes = 100, .device = kName})) << "and it goes on";
}

TEST_F(ThirdDevice, FilesOfTheMount) {
    const std::string point = scratch() + "/mnt";
    std::filesystem::create_directory(point);
    ASSERT_EQ(stop(), 0);
    auto with_mount = options();
    with_mount.push_back(point);
    if (!start(with_mount)) GTEST_SKIP() << "nothing can be mounted here: " << log();
    const auto data = pattern((3 << 20) + 5, 8);
    const std::string path = point + "/file";
    std::ofstream(path).write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
    char name[32] = {};
    EXPECT_GT(getxattr(path.c_str(), "user.device", name, sizeof name), 0);
    EXPECT_STREQ(name, kName) << "the first of its devices";
    std::ifstream file(path);
    std::string back(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(back)), data));
    auto object = hpp::Object::open_path(path).value();
    EXPECT_EQ(content(object), data);
    file.close();
    bool unmounted = false;  // the kernel tells gshmd a moment later that the file is closed
    for (int i = 0; i < 1000 && !unmounted; ++i) {
        unmounted = run_cli({"umount"}).exit_code == 0;
        if (!unmounted) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(unmounted);
}

TEST_F(ThirdDevice, VineyardsBuffers) {
    vineyard::Client client;
    ASSERT_TRUE(client.Connect(dir()).ok());
    for (size_t bytes : {size_t{100}, size_t{3} << 20}) {
        vineyard::ObjectID id = 0;
        vineyard::Payload payload;
        std::shared_ptr<vineyard::MutableBuffer> buffer;
        const auto made = client.CreateGPUBuffer(bytes, id, payload, buffer);  // on the first that is not host
        ASSERT_TRUE(made.ok()) << made.ToString();
        EXPECT_EQ(buffer->device(), kName);
        EXPECT_FALSE(buffer->is_cpu());
        {
            vineyard::CUDABufferMirror mirror(*buffer);
            memcpy(mirror.mutable_data(), pattern(bytes, 4).data(), bytes);
        }
        ASSERT_TRUE(client.Seal(id).ok());
        vineyard::Client other;
        ASSERT_TRUE(other.Connect(dir()).ok());
        std::shared_ptr<vineyard::Buffer> got;
        ASSERT_TRUE(other.GetGPUBuffer(id, false, got).ok());
        vineyard::CUDABufferMirror mirror(*got, true);
        EXPECT_EQ(memcmp(mirror.data(), pattern(bytes, 4).data(), bytes), 0);
        EXPECT_TRUE(other.DelData(id).ok());
        EXPECT_TRUE(client.DelData(id).IsObjectNotExists());
    }
}

// A libgshm that was built without it copies through gshmd, and says why it has no pointer.
TEST_F(ThirdDevice, ClientsThatDoNotKnowTheKind) {
    make("o", 100, 9).seal().value();
    const auto data = pattern(100, 9);
    const auto read = run_cli({"cat", "o"});  // the command is linked with the ordinary one
    EXPECT_EQ(read.exit_code, 0) << read.err;
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(read.out)), data));
    EXPECT_EQ(run_cli({"create", "c", "--size", "1M", "--fill", "7", "--device", kName}).exit_code, 0);
    ChildProcess child;
    ASSERT_TRUE(child.spawn({build_path("bin/weights_reader"), "--dir", dir(), "--name", "o"}));
    const auto result = child.finish({});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE((result.out + result.err).find("file:nvme is of a kind that this libgshm does not know"),
              std::string::npos)
        << result.out << result.err;
}

TEST_F(ThirdDevice, SpecsThatMeanNothingAreRefused) {
    ASSERT_EQ(stop(), 0);
    for (const std::string spec :
         {"file", "file:", "file:relative/path", "file::4G", "fil:/tmp", "", ":", "host:", "host:x", "host:0",
          "host:1G:1G", "cuda:", "cuda:x", "cuda:-1", "cuda::4G", "cuda:0:x", "cuda:0:0", "cuda:0:4G:4G"}) {
        EXPECT_FALSE(start({"--device", spec})) << spec;
        const std::string reason =
            spec.empty() ? "--device: a value must not be empty" : "'" + spec + "' is not a device";
        EXPECT_NE(log().find(reason), std::string::npos) << log();
    }
    EXPECT_NE(log().find("file:/mnt/nvme:40G"), std::string::npos) << "its examples are among those that are shown";
    EXPECT_FALSE(start({"--device", "file:/nowhere"}));
    EXPECT_NE(log().find("/nowhere"), std::string::npos);
    // There, but of no use: as a GPU that does not start.
    ASSERT_TRUE(start({"--device", "file:nvme", "--device", "host:64M"})) << log();
    auto client = connect();
    EXPECT_EQ(client.create({.name = "x", .size_bytes = 1, .device = "file:nvme"}).error().code, ENODEV);
    EXPECT_TRUE(client.create({.name = "x", .size_bytes = 1, .device = "host"}));
}

}  // namespace
}  // namespace gshm::core::test

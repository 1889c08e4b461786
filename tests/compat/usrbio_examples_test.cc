// 3FS's own examples, unchanged: they name /mnt/hf3fs, so that is where a mount of gshm, or its runtime folder, is put,
// in a mount namespace of this program's own.
#include <hf3fs_usrbio.h>
#include <random>
#include <sys/mount.h>
#include <sys/stat.h>

#include "mount/mount_fixture.h"

namespace gshm::core::test {
namespace {

constexpr char kPlace[] = "/mnt/hf3fs";
constexpr char kFile[] = "/mnt/hf3fs/data/file.bin";

std::string random_bytes(size_t size) {
    std::mt19937_64 random(1);
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
}

// This program is in a private mount namespace (mount_fixture.cc); mounts over /mnt end with it.
bool place(const std::string& folder) {
    return geteuid() == 0 && mount("tmpfs", "/mnt", "tmpfs", 0, nullptr) == 0 && mkdir(kPlace, 0755) == 0 &&
           mount(folder.c_str(), kPlace, nullptr, MS_BIND, nullptr) == 0;
}

void make_file() {
    mkdir("/mnt/hf3fs/data", 0755);
    ASSERT_TRUE(MountFixture::write_file(kFile, random_bytes((8 << 20) + 4321), O_CREAT));
}

class UsrbioExamples : public ::testing::Test, public ::testing::WithParamInterface<const char*> {
protected:
    void TearDown() override {
        umount2(kPlace, MNT_DETACH);
        umount2("/mnt", MNT_DETACH);
    }
    static bool is_host() { return std::string_view(GetParam()) == "host"; }
    // With the fake GPU, or without one and told so.
    static RunResult run(const std::string& program) {
        std::vector<std::string> env = DaemonFixture::fake_cuda_env(1);
        if (is_host()) env = {"GSHM_USRBIO_DEVICE=host"};
        ChildProcess child;
        if (!child.spawn({DaemonFixture::bin(program)}, env)) return {};
        return child.finish();
    }
    static void run_all() {
        for (const char* program : {"usrbio_read", "usrbio_wrap", "usrbio_share"}) {
            const auto result = run(program);
            EXPECT_EQ(result.exit_code, 0) << program << ": " << result.out << result.err;
            EXPECT_NE(result.out.find("bytes are there"), std::string::npos) << program << ": " << result.out;
            EXPECT_EQ(result.err, "") << program;
        }
    }
    MountFixture daemon_;
};
INSTANTIATE_TEST_SUITE_P(Memory, UsrbioExamples, ::testing::Values("cuda", "host"),
                         [](const auto& info) { return info.param; });

TEST_P(UsrbioExamples, OnAMount) {
    if (auto missing = MountFixture::missing_for(Way::passthrough); !missing.empty()) GTEST_SKIP() << missing;
    std::vector<std::string> devices = {"--device", "host:256M"};
    ASSERT_TRUE(daemon_.start_mounted(is_host() ? Way::passthrough : Way::cuda,
                                      is_host() ? devices : std::vector<std::string>{"--device", "cuda"}))
        << daemon_.log();
    if (!place(daemon_.mount())) GTEST_SKIP() << "nothing may be mounted here";
    make_file();
    run_all();

    char where[64] = "";
    EXPECT_EQ(hf3fs_extract_mount_point(where, sizeof where, kFile), static_cast<int>(sizeof kPlace));
    EXPECT_STREQ(where, kPlace);
    EXPECT_EQ(hf3fs_extract_mount_point(where, sizeof where, "/mnt/hf3fs"), static_cast<int>(sizeof kPlace));
    EXPECT_EQ(hf3fs_extract_mount_point(where, sizeof where, "/mnt/hf3fs/data/to be made"),
              static_cast<int>(sizeof kPlace));
    strcpy(where, "kept");
    EXPECT_EQ(hf3fs_extract_mount_point(where, 3, kFile), static_cast<int>(sizeof kPlace)) << "how much room it needs";
    EXPECT_STREQ(where, "kept");
    EXPECT_EQ(hf3fs_extract_mount_point(where, sizeof where, "/mnt"), -1);
    const int fd = open(kFile, O_RDWR);
    const int outside = open("/mnt/elsewhere", O_RDWR | O_CREAT, 0644);
    EXPECT_TRUE(hf3fs_is_hf3fs(fd));
    EXPECT_FALSE(hf3fs_is_hf3fs(outside));
    EXPECT_EQ(hf3fs_hardlink(kFile, "/mnt/hf3fs/data/second"), 0);
    EXPECT_EQ(hf3fs_hardlink(kFile, "/mnt/hf3fs/data/second"), EEXIST);
    EXPECT_EQ(MountFixture::read_file("/mnt/hf3fs/data/second"), MountFixture::read_file(kFile));
    if (is_host()) {
        const size_t start[] = {4096, 1 << 20};
        const size_t end[] = {8192, 2 << 20};
        EXPECT_EQ(hf3fs_punchhole(fd, 2, start, end, 0), 0);
        const auto bytes = MountFixture::read_file(kFile);
        EXPECT_EQ(bytes.size(), (8u << 20) + 4321);
        EXPECT_EQ(bytes.substr(4096, 4096), std::string(4096, '\0'));
        EXPECT_EQ(bytes.substr(1 << 20, 1 << 20), std::string(1 << 20, '\0'));
    }
    close(fd);
    close(outside);
}

TEST_P(UsrbioExamples, OnARuntimeFolder) {
    std::vector<std::string> devices = {"--device", "host:256M"};
    if (!is_host()) devices.insert(devices.end(), {"--device", "cuda"});
    ASSERT_TRUE(daemon_.start(devices, DaemonFixture::fake_cuda_env(1))) << daemon_.log();
    if (!place(daemon_.dir())) GTEST_SKIP() << "nothing may be mounted here";
    make_file();
    run_all();
    char where[64] = "";
    EXPECT_EQ(hf3fs_extract_mount_point(where, sizeof where, kFile), -1);
}

}  // namespace
}  // namespace gshm::core::test

// `gshm doctor` on simulated machines: each has its own /proc, /sys and /dev below GSHM_DOCTOR_ROOT.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon_fixture.h"
#include <gshm/version.h>

namespace gshm::core::test {
namespace {

using Json = nlohmann::json;
using Args = std::vector<std::string>;

class Doctor : public ::testing::Test, protected DaemonFixture {
protected:
    // A healthy machine without a GPU; tests then change it.
    void SetUp() override {
        machine("proc/sys/kernel/osrelease", "6.18.1\n");
        machine("proc/sys/kernel/io_uring_disabled", "0\n");
        machine("proc/sys/fs/nr_open", "1048576\n");
        machine("proc/self/limits", limits("unlimited", "1048576"));
        machine("proc/self/status", "CapEff:\t0000000000000000\n");
        machine("dev/fuse", "");
        machine("usr/bin/fusermount3", "");
        machine("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
        machine("sys/module/fuse/parameters/enable_uring", "N\n");
        std::filesystem::create_directories(root() + "/dev/shm");
        std::filesystem::create_directories(dir());
    }
    std::string root() const { return scratch() + "/machine"; }
    void machine(const std::string& path, std::string_view text) {
        const std::filesystem::path file = root() + "/" + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << text;
    }
    static std::string limits(const std::string& memlock, const std::string& files) {
        return "Limit                     Soft Limit           Hard Limit           Units     \n"
               "Max open files            " +
               files + "   " + files +
               "   files     \n"
               "Max locked memory         " +
               memlock + "   " + memlock + "   bytes     \n";
    }
    // An NVIDIA GPU on the bus. uuid: the driver has it.
    void gpu(const std::string& address, const std::string& node, const std::string& uuid = {}) {
        machine("sys/bus/pci/devices/" + address + "/class", "0x030200\n");
        machine("sys/bus/pci/devices/" + address + "/vendor", "0x10de\n");
        machine("sys/devices/pci/" + address + "/numa_node", node + "\n");
        machine("sys/bus/pci/devices/" + address + "/device/numa_node", node + "\n");
        if (uuid.empty()) return;
        machine(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: 12.2.0\n");
        machine("proc/driver/nvidia/gpus/" + address + "/information",
                "Model: \t\t NVIDIA H200\nIRQ:   \t\t 100\nGPU UUID: \t " + uuid + "\n");
    }

    RunResult run(Args env = fake_cuda_env(0), Args args = {"--json", "doctor"}) {
        env.push_back("GSHM_DOCTOR_ROOT=" + root());
        return run_cli(args, {}, env);
    }
    // Its findings by check; several findings of one check in order.
    std::map<std::string, Json> examine(int exit_code = 0, const Args& env = fake_cuda_env(0)) {
        const auto result = run(env);
        EXPECT_EQ(result.exit_code, exit_code) << result.out;
        EXPECT_EQ(result.err, "");
        const auto document = Json::parse(result.out, nullptr, false);
        EXPECT_EQ(document["healthy"], exit_code == 0);
        std::map<std::string, Json> findings;
        for (const auto& one : document["checks"]) {
            findings[one["check"]].push_back(one);
            EXPECT_FALSE(one["found"].get<std::string>().empty());
            EXPECT_TRUE(one["status"] != "ok" || one["remedy"] == "") << one;
        }
        return findings;
    }
    static void expect(const Json& findings, const std::string& status, const Args& texts, size_t index = 0) {
        ASSERT_GT(findings.size(), index);
        EXPECT_EQ(findings[index]["status"], status) << findings[index];
        const auto all =
            findings[index]["found"].get<std::string>() + "\n" + findings[index]["remedy"].get<std::string>();
        for (const auto& text : texts) EXPECT_NE(all.find(text), std::string::npos) << text << " in " << all;
    }
};

TEST_F(Doctor, AMachineWithoutAGpuAndADaemonIsNotIll) {
    auto found = examine();
    expect(found["driver"], "missing", {"no NVIDIA GPU", "host"});
    EXPECT_EQ(found["driver"][0]["needed"], false);
    for (const char* check : {"fabric", "dma-buf", "gpudirect-rdma"}) expect(found[check], "missing", {"no GPU"});
    expect(found["rdma"], "missing", {"no RDMA device"});
    expect(found["cufile"], "missing", {"libcufile.so.0"});
    expect(found["fuse"], "ok", {});
    expect(found["memlock"], "ok", {"unlimited"});
    expect(found["descriptors"], "ok", {"1048576"});
    expect(found["daemon"], "warning", {dir(), "gshmd --dir"});
    expect(found["runtime-folder"], "ok", {dir()});
    EXPECT_FALSE(found.contains("numa"));

    const auto text = run(fake_cuda_env(0), {"doctor"});
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_NE(text.out.find("warning  daemon"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("; start it with `gshmd"), std::string::npos) << text.out;
}

TEST_F(Doctor, OnTheRealMachineEveryCheckHasALine) {
    const auto result = run_cli({"doctor", "--json"});
    const auto document = Json::parse(result.out, nullptr, false);
    ASSERT_TRUE(document.is_object()) << result.out << result.err;
    EXPECT_EQ(result.exit_code, document["healthy"] == true ? 0 : 1);
    std::map<std::string, int> seen;
    for (const auto& one : document["checks"]) ++seen[one["check"]];
    for (const char* check :
         {"driver", "fabric", "dma-buf", "gpudirect-rdma", "cufile", "rdma", "io_uring", "fuse", "fuse-passthrough",
          "fuse-io-uring", "memlock", "dev-shm", "shmem-huge-pages", "descriptors", "daemon"})
        EXPECT_GE(seen[check], 1) << check;
}

TEST_F(Doctor, TheDaemonItsDevicesItsKeeper) {
    ASSERT_TRUE(start({"--device", "cuda", "--device", "host:64M"}, fake_cuda_env(1))) << log();
    auto found = examine();
    expect(found["daemon"], "ok", {"gshmd " GSHM_VERSION, std::to_string(pid())});
    expect(found["daemon-device"], "ok", {"cuda:0"}, 0);
    expect(found["daemon-device"], "ok", {"host", "64M"}, 1);
    expect(found["keeper"], "ok", {std::to_string(keeper_pid())});
    expect(found["mount"], "missing", {"gshm mount DIR"});
    stop();
    ASSERT_TRUE(start({"--device", "host:64M", "--keeper", "none"})) << log();
    found = examine();
    expect(found["keeper"], "warning", {"--keeper none"});
}

TEST_F(Doctor, MoreHostMemoryThanTheMachineHas) {
    machine("proc/meminfo", "MemTotal:       12582912 kB\nMemFree:         1048576 kB\n");
    ASSERT_TRUE(start({"--device", "host:64M"})) << log();
    expect(examine()["daemon-device"], "ok", {"host"}, 0);
    EXPECT_EQ(log().find("of memory"), std::string::npos) << log();
    stop();
    ASSERT_TRUE(start({"--device", "host:1000T", "--tier", "host:2000T"})) << log();
    expect(examine()["daemon-device"], "warning", {"12G of memory", "--device host:6144M"}, 0);
    for (const char* option : {"--device host has 1000", "--tier host has 2.0 PiB"})
        EXPECT_NE(log().find(option), std::string::npos) << log();
}

TEST_F(Doctor, SomethingThatIsNotGshmdAtItsSocket) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto path = socket_path();
    ASSERT_LT(path.size(), sizeof address.sun_path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener, 4), 0);
    std::thread rude([&] {
        const int peer = ::accept(listener, nullptr, nullptr);
        const char greeting[] = "hello, who are you?";
        ::send(peer, greeting, sizeof greeting, MSG_NOSIGNAL);
        ::close(peer);
    });
    const auto result = run();
    rude.join();
    ::close(listener);
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_NE(result.out.find("does not answer"), std::string::npos) << result.out;
}

TEST_F(Doctor, NoPlaceForTheDaemon) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    if (::access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "needs setpriv";
    Args argv = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    const auto command = cli_argv({"doctor"});
    argv.insert(argv.end(), command.begin(), command.end());
    auto env = fake_cuda_env(0);
    env.push_back("GSHM_DOCTOR_ROOT=" + root());
    ChildProcess child;
    ASSERT_TRUE(child.spawn(argv, env));
    const auto result = child.finish();
    if (result.out.empty()) GTEST_SKIP() << "another user cannot run the programs of this build";
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_NE(result.out.find("MISSING  runtime-folder"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("GSHM_DIR"), std::string::npos) << result.out;
}

TEST_F(Doctor, AGpuOnTheBusThatNoDriverHas) {
    gpu("0000:3b:00.0", "0");
    auto found = examine(1);
    expect(found["driver"], "missing", {"1 NVIDIA GPU", "no driver", "modprobe nvidia"});
    EXPECT_EQ(found["driver"][0]["needed"], true);
}

TEST_F(Doctor, ADriverWhoseLibraryDoesNotStart) {
    gpu("0000:3b:00.0", "0", "GPU-1");
    auto found = examine(1);
    expect(found["driver"], "missing", {"580.95.05", "CUDA does not start", "libcuda.so.1"});
    EXPECT_NE(run(fake_cuda_env(0), {"doctor"}).out.find("MISSING  driver"), std::string::npos);
}

TEST_F(Doctor, GpusAndTheirHandles) {
    auto env = fake_cuda_env(2);
    env.insert(env.end(), {"FAKECUDA_FABRIC=0", "FAKECUDA_DMABUF=1"});
    gpu("0000:3b:00.0", "0", "GPU-of-another-kind");
    auto found = examine(0, env);
    expect(found["driver"], "ok", {"580.95.05", "2 GPUs"});
    expect(found["gpu"], "ok", {"cuda:0", "VMM"}, 0);
    expect(found["gpu"], "ok", {"cuda:1"}, 1);
    expect(found["gpu"], "warning", {"NVIDIA H200 at 0000:3b:00.0", "nvidia-smi"}, 2);
    expect(found["fabric"], "missing", {"cuda:0, cuda:1", "/proc/devices"});
    expect(found["dma-buf"], "ok", {"cuda:0, cuda:1"});
    expect(found["gpudirect-rdma"], "ok", {"dma-buf"});

    auto hidden = env;
    hidden.push_back("CUDA_VISIBLE_DEVICES=0");
    expect(examine(0, hidden)["gpu"], "warning", {"CUDA_VISIBLE_DEVICES is 0"}, 1);

    machine("proc/devices", "Character devices:\n  1 mem\n239 nvidia-caps\n240 nvidia-caps-imex-channels\n");
    expect(examine(0, env)["fabric"], "missing",
           {"mknod /dev/nvidia-caps-imex-channels/channel0 c 240 0", "mkdir -p /dev/nvidia-caps-imex-channels"});
    machine("dev/nvidia-caps-imex-channels/channel0", "");
    expect(examine(0, env)["fabric"], "missing", {"channel is there"});
    env[env.size() - 2] = "FAKECUDA_FABRIC=1";
    expect(examine(0, env)["fabric"], "ok", {"cuda:0, cuda:1"});

    env.back() = "FAKECUDA_DMABUF=0";
    found = examine(0, env);
    expect(found["dma-buf"], "missing", {"open kernel modules"});
    expect(found["gpudirect-rdma"], "missing", {"modprobe nvidia_peermem"});
    machine("proc/modules", "nvidia_peermem 16384 0 - Live 0x0\nnvidia 1 1 - Live 0x0\n");
    expect(examine(0, env)["gpudirect-rdma"], "ok", {"nvidia_peermem"});
}

TEST_F(Doctor, DmaBufNeedsTheKernelForRdma) {
    auto env = fake_cuda_env(1);
    env.push_back("FAKECUDA_DMABUF=1");
    machine("proc/sys/kernel/osrelease", "5.10.0-30-amd64\n");
    auto found = examine(0, env);
    expect(found["gpudirect-rdma"], "missing", {"5.12"});
    expect(found["fuse-passthrough"], "missing", {"5.10.0", "6.9"});
}

TEST_F(Doctor, CuFile) {
    machine("usr/local/cuda-12.4/lib64/libcufile.so.0", "");
    expect(examine()["cufile"], "missing", {"/usr/local/cuda-12.4/lib64", "ldconfig"});
    machine("opt/gds/libcufile.so.0", "");
    using namespace std::string_literals;
    machine("etc/ld.so.cache", "glibc-ld.so.cache1.1\0\1libcufile.so.0\0/opt/gds/libcufile.so.0\0libz.so.1\0"s);
    expect(examine()["cufile"], "warning", {"/opt/gds/libcufile.so.0", "modprobe nvidia-fs"});
    machine("proc/driver/nvidia-fs/version", "version: 2.17\n");
    expect(examine()["cufile"], "ok", {"nvidia-fs is loaded"});
}

TEST_F(Doctor, RdmaPorts) {
    const auto port = [&](const std::string& device, const std::string& state) {
        const auto folder = "sys/class/infiniband/" + device + "/ports/1/";
        machine(folder + "state", state + "\n");
        machine(folder + "link_layer", "Ethernet\n");
        machine(folder + "rate", "400 Gb/sec (4X NDR)\n");
    };
    port("mlx5_0", "4: ACTIVE");
    port("mlx5_1", "1: DOWN");
    auto found = examine();
    expect(found["rdma"], "ok", {"mlx5_0 port 1: ACTIVE, Ethernet, 400 Gb/sec"}, 0);
    expect(found["rdma"], "warning", {"mlx5_1 port 1: DOWN", "cable"}, 1);
}

TEST_F(Doctor, IoUringSwitchedOff) {
    machine("proc/sys/kernel/io_uring_disabled", "2\n");
    expect(examine()["io_uring"], "warning", {"threads", "sysctl kernel.io_uring_disabled=0"});
}

// As in a container: the call itself is refused, and no file shows it.
TEST_F(Doctor, IoUringRefusedByAFilter) {
    const auto output = scratch() + "/output";
    const auto argv = cli_argv({"doctor"});
    const pid_t child = ::fork();
    if (child == 0) {
        sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 425, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        sock_fprog program = {std::size(filter), filter};
        if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, 2, &program) != 0) ::_exit(99);
        ::dup2(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        std::vector<char*> pointers;
        for (const auto& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
        pointers.push_back(nullptr);
        ::setenv("GSHM_DOCTOR_ROOT", root().c_str(), 1);
        ::execv(pointers[0], pointers.data());
        ::_exit(98);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 99) GTEST_SKIP() << "the kernel has no filters of system calls";
    std::ifstream file(output);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_NE(text.find("warning  io_uring"), std::string::npos) << text;
    EXPECT_NE(text.find("seccomp profile"), std::string::npos) << text;
}

TEST_F(Doctor, Fuse) {
    auto found = examine();
    expect(found["fuse-io-uring"], "missing", {"enable_uring"});
    expect(found["fuse-passthrough"], ::geteuid() == 0 ? "ok" : "missing", {});
    machine("sys/module/fuse/parameters/enable_uring", "Y\n");
    std::filesystem::remove(root() + "/dev/fuse");
    found = examine();
    expect(found["fuse-io-uring"], "ok", {});
    expect(found["fuse"], "missing", {"modprobe fuse"});
}

TEST_F(Doctor, LimitsOfMemoryAndDescriptors) {
    machine("proc/self/limits", limits("8388608", "1024"));
    auto found = examine();
    expect(found["memlock"], "warning", {"8.0M", "64M", "LimitMEMLOCK"});
    expect(found["descriptors"], "warning", {"1024", "LimitNOFILE"});

    machine("proc/self/status", "CapEff:\t000001ffffffffff\n");  // root: one limit is raised, the other does not apply
    found = examine();
    expect(found["memlock"], "ok", {"root"});
    expect(found["descriptors"], "ok", {"1048576"});

    machine("proc/self/status", "CapEff:\t0000000000000000\n");
    machine("proc/self/limits", limits("unlimited", "100"));
    found = examine(1);
    expect(found["descriptors"], "missing", {"100", "ulimit -Hn"});
    EXPECT_EQ(found["descriptors"][0]["needed"], true);
    std::filesystem::remove(root() + "/proc/self/limits");
    expect(examine()["descriptors"], "warning", {"not known"});
}

TEST_F(Doctor, SharedMemoryOfTheHost) {
    machine("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise never [deny] force\n");
    expect(examine()["shmem-huge-pages"], "warning", {"denied", "shmem_enabled"});
    std::filesystem::remove(root() + "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    std::filesystem::remove(root() + "/dev/shm");
    auto found = examine();
    expect(found["shmem-huge-pages"], "missing", {"CONFIG_TRANSPARENT_HUGEPAGE"});
    expect(found["dev-shm"], "warning", {"mount -t tmpfs"});
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small one";
    const auto small = root() + "/dev/shm";
    std::filesystem::create_directories(small);
    if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64m") != 0) GTEST_SKIP() << "mounting is not permitted here";
    expect(examine()["dev-shm"], "warning", {"64M", "--shm-size"});
    ::umount2(small.c_str(), MNT_DETACH);
}

TEST_F(Doctor, DistancesToDisksAndNetworkCards) {
    machine("sys/devices/system/node/node0/distance", "10 21\n");
    machine("sys/devices/system/node/node1/distance", "21 10\n");
    machine("sys/devices/system/node/possible", "0-1\n");
    gpu("0000:3b:00.0", "0");
    gpu("0000:d8:00.0", "1");
    // A disk is attached to its controller. A loop device has no parent.
    machine("sys/devices/pci0000:00/0000:01:00.0/numa_node", "0\n");
    machine("sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/size", "1\n");
    std::filesystem::create_directories(root() + "/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/device");
    std::filesystem::create_directories(root() + "/sys/block/loop0");
    std::filesystem::create_directory_symlink("../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1",
                                              root() + "/sys/block/nvme0n1");
    machine("sys/class/net/eth0/device/numa_node", "1\n");
    machine("sys/class/net/lo/mtu", "65536\n");
    auto found = examine(1)["numa"];
    ASSERT_EQ(found.size(), 2u);
    expect(found, "warning", {"0000:3b:00.0 on node 0", "nvme0n1 10", "eth0 21", "no network card"}, 0);
    expect(found, "warning", {"0000:d8:00.0 on node 1", "nvme0n1 21", "eth0 10", "no disk"}, 1);
    const auto neighbours = found[0]["details"]["neighbours"];
    ASSERT_EQ(neighbours.size(), 2u);
    EXPECT_EQ(neighbours[0]["kind"], "disk");
    EXPECT_EQ(neighbours[0]["distance"], 10);
    EXPECT_EQ(neighbours[1]["node"], 1);

    machine("sys/class/infiniband/mlx5_0/device/numa_node", "0\n");
    expect(examine(1)["numa"], "ok", {"mlx5_0 10"}, 0);
}

TEST_F(Doctor, OneNodeIsNearToEverything) {
    machine("sys/devices/system/node/node0/distance", "10\n");
    gpu("0000:3b:00.0", "-1");
    machine("sys/class/net/eth0/device/numa_node", "-1\n");
    expect(examine(1)["numa"], "ok", {"on node 0", "eth0 10"});
    machine("sys/devices/system/node/node1/distance", "21 10\n");
    machine("sys/devices/system/node/node0/distance", "10 21\n");
    expect(examine(1)["numa"], "warning", {"firmware"});
}

}  // namespace
}  // namespace gshm::core::test

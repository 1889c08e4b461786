// The test double of the driver: memory that is passed between processes.
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

namespace fakecuda_test {
namespace {

bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

// A duplicate for a process started by run_part(), with its number in the environment.
std::string pass(int fd) {
    return "FD=" + std::to_string(dup(fd));
}

TEST(FakeCudaShare, ExportedDescriptor) {
    if (!in_child()) return;
    start();
    auto handle = create();
    int fd = export_fd(handle);
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED) << "the CPU cannot map it";
    char byte = 0;
    EXPECT_LT(::read(fd, &byte, 1), 0);
    EXPECT_LT(lseek(fd, 0, SEEK_END), 0);
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_EQ(import_fd(fd, &imported), kSuccess);
    EXPECT_TRUE(is_open(fd)) << "import leaves it with its owner";
    EXPECT_EQ(import_fd(fcntl(fd, F_DUPFD_CLOEXEC, 0), &imported), kSuccess);
    EXPECT_NE(imported, handle);
    CUdeviceptr one = map_new(handle);
    CUdeviceptr other = map_new(imported);
    EXPECT_EQ(write(one, "same bytes"), kSuccess);
    EXPECT_EQ(read(other, 10), "same bytes");
}

TEST(FakeCudaShare, ExportRefusals) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    int fd = -1;
    auto handle = create();
    EXPECT_EQ(cuda().mem_export(&fd, create(kUnit, 0), kMemHandleTypePosixFd, 0), kErrorInvalidValue)
        << "not asked for at creation";
    EXPECT_EQ(cuda().mem_export(&fd, handle, kMemHandleTypeFabric, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_export(&fd, handle, 0, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_export(&fd, handle, kMemHandleTypePosixFd | kMemHandleTypeFabric, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_export(&fd, handle, kMemHandleTypePosixFd, 1), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_export(nullptr, handle, kMemHandleTypePosixFd, 0), kErrorInvalidValue);
}

TEST(FakeCudaShare, ImportedHandleCannotBeExportedAgain) {
    if (!in_child()) return;
    ASSERT_EQ(cuda().init(0), kSuccess);
    auto wanted = properties();
    wanted.allocFlags.gpuDirectRDMACapable = 1;
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle imported = 0;
    ASSERT_EQ(cuda().mem_create(&handle, kUnit, &wanted, 0), kSuccess);
    ASSERT_EQ(import_fd(export_fd(handle), &imported), kSuccess);
    int fd = -1;
    EXPECT_EQ(cuda().mem_export(&fd, imported, kMemHandleTypePosixFd, 0), kErrorInvalidValue);
    CUmemAllocationProp got = {};
    EXPECT_EQ(cuda().mem_get_properties(&got, handle), kSuccess);
    EXPECT_EQ(got.requestedHandleTypes, kMemHandleTypePosixFd);
    EXPECT_EQ(got.allocFlags.gpuDirectRDMACapable, 1);
    EXPECT_EQ(cuda().mem_get_properties(&got, imported), kSuccess);
    EXPECT_EQ(got.requestedHandleTypes, 0);
    EXPECT_EQ(got.allocFlags.gpuDirectRDMACapable, 0);
    EXPECT_EQ(got.location.type, kMemLocationTypeDevice);
    EXPECT_EQ(got.location.id, 0);
}

TEST(FakeCudaShare, ImportRefusals) {
    if (!in_child()) return;
    start();
    CUmemGenericAllocationHandle handle = 0;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    int other = memfd_create("other", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(other, kUnit), 0);
    for (int fd : {-1, 999, open("/dev/null", O_RDWR), ends[0], other}) {
        EXPECT_EQ(import_fd(fd, &handle), kErrorUnknown) << fd;
    }
    EXPECT_EQ(write(map_new(create()), "x"), kSuccess) << "that one does no harm";
    int fd = export_fd(create());
    EXPECT_EQ(import_fd(fd, nullptr), kErrorInvalidValue);
    void* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    EXPECT_EQ(cuda().mem_import(&handle, shareable, 0), kErrorInvalidValue);
    EXPECT_EQ(cuda().mem_import(&handle, shareable, 2), kErrorNotSupported);
    CUmemFabricHandle garbage = {};
    EXPECT_EQ(cuda().mem_import(&handle, &garbage, kMemHandleTypeFabric), kErrorNotSupported);
    memset(&garbage, 0x5a, sizeof garbage);
    EXPECT_EQ(cuda().mem_import(&handle, &garbage, kMemHandleTypeFabric), kErrorNotSupported);
    EXPECT_EQ(cuda().mem_import(&handle, nullptr, kMemHandleTypeFabric), kErrorInvalidValue);
}

TEST(FakeCudaShare, DescriptorKeepsMemoryAlive) {
    if (!in_child()) return;
    start();
    auto handle = create();
    CUdeviceptr pointer = map_new(handle);
    EXPECT_EQ(write(pointer, "kept"), kSuccess);
    int fd = export_fd(handle);
    EXPECT_EQ(cuda().mem_unmap(pointer, kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_release(handle), kSuccess);
    EXPECT_EQ(import_fd(fd, &handle), kSuccess);
    EXPECT_EQ(read(map_new(handle), 4), "kept");
}

void import_and_expect(const std::string& text) {
    start();
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(import_fd(argument("FD"), &handle), kSuccess);
    CUdeviceptr pointer = map_new(handle);
    EXPECT_EQ(read(pointer + 1000, text.size()), text);
    EXPECT_EQ(write(pointer + 1000, "answer"), kSuccess);
}

TEST(FakeCudaShare, OtherProcess) {
    if (!in_child()) return;
    if (part() == "importer") return import_and_expect("question");
    start();
    auto handle = create();
    CUdeviceptr pointer = map_new(handle);
    EXPECT_EQ(write(pointer + 1000, "question"), kSuccess);
    std::string output;
    EXPECT_EQ(run_part("importer", {pass(export_fd(handle))}, &output), 0) << output;
    EXPECT_EQ(read(pointer + 1000, 6), "answer");
}

void send_fd(int socket, int fd) {
    char byte = 0;
    iovec data = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ASSERT_EQ(sendmsg(socket, &message, 0), 1);
}

int receive_fd(int socket) {
    char byte = 0;
    iovec data = {&byte, 1};
    int fd = -1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    EXPECT_EQ(recvmsg(socket, &message, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

// The keeper relies on this: a process that never starts the driver keeps the memory of a killed one.
TEST(FakeCudaShare, SurvivesItsOwner) {
    if (!in_child()) return;
    if (part() == "owner") {
        start();
        auto handle = create();
        EXPECT_EQ(write(map_new(handle) + 1000, "legacy"), kSuccess);
        send_fd(argument("FD"), export_fd(handle));
        if (!testing::Test::HasFailure()) raise(SIGKILL);
        return;
    }
    if (part() == "heir") return import_and_expect("legacy");
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    std::string output;
    int status = run_part("owner", {pass(ends[1])}, &output);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << output;
    int fd = receive_fd(ends[0]);
    EXPECT_EQ(run_part("heir", {pass(fd)}, &output), 0) << output;
}

// The two sides number their devices differently.
TEST(FakeCudaShare, DeviceIsFoundByUuid) {
    if (!in_child({"FAKECUDA_DEVICES=3"})) return;
    if (part() == "sees it") {
        start();
        CUmemGenericAllocationHandle handle = 0;
        CUmemAllocationProp got = {};
        ASSERT_EQ(import_fd(argument("FD"), &handle), kSuccess);
        EXPECT_EQ(cuda().mem_get_properties(&got, handle), kSuccess);
        EXPECT_EQ(got.location.id, 1);
        return;
    }
    if (part() == "does not") {
        start();
        CUmemGenericAllocationHandle handle = 0;
        EXPECT_EQ(import_fd(argument("FD"), &handle), kErrorInvalidDevice);
        return;
    }
    start();
    std::string fd = pass(export_fd(create(kUnit, kMemHandleTypePosixFd, 2)));
    std::string output;
    EXPECT_EQ(run_part("sees it", {fd, "FAKECUDA_DEVICES=3", "CUDA_VISIBLE_DEVICES=1,2"}, &output), 0) << output;
    EXPECT_EQ(run_part("does not", {fd, "FAKECUDA_DEVICES=3", "CUDA_VISIBLE_DEVICES=0,1"}, &output), 0) << output;
}

TEST(FakeCudaShare, FabricNotPermitted) {
    if (!in_child()) return;
    if (!is_fake() && access("/dev/nvidia-caps-imex-channels/channel0", F_OK) == 0) GTEST_SKIP() << "it is permitted";
    ASSERT_EQ(cuda().init(0), kSuccess);
    CUmemGenericAllocationHandle handle = 0;
    for (int types : {kMemHandleTypeFabric, kMemHandleTypeFabric | kMemHandleTypePosixFd}) {
        auto wanted = properties(types);
        EXPECT_EQ(cuda().mem_create(&handle, kUnit, &wanted, 0), kErrorNotPermitted);
    }
}

TEST(FakeCudaShare, Fabric) {
    if (!in_child({"FAKECUDA_FABRIC=1"})) return;
    CUmemFabricHandle fabric = {};
    CUmemGenericAllocationHandle imported = 0;
    if (part() != "") {
        start();
        ASSERT_EQ(::read(argument("FD"), &fabric, sizeof fabric), static_cast<ssize_t>(sizeof fabric));
        CUresult result = cuda().mem_import(&imported, &fabric, kMemHandleTypeFabric);
        if (part() == "not permitted") {
            EXPECT_EQ(result, kErrorNotPermitted);
            return;
        }
        ASSERT_EQ(result, kSuccess);
        EXPECT_EQ(read(map_new(imported), 6), "fabric");
        return;
    }
    start();
    auto handle = create(kUnit, kMemHandleTypeFabric | kMemHandleTypePosixFd);
    CUdeviceptr pointer = map_new(handle);
    EXPECT_EQ(write(pointer, "fabric"), kSuccess);
    EXPECT_GE(export_fd(handle), 0);
    ASSERT_EQ(cuda().mem_export(&fabric, handle, kMemHandleTypeFabric, 0), kSuccess);
    EXPECT_EQ(cuda().mem_import(&imported, &fabric, kMemHandleTypeFabric), kSuccess);
    EXPECT_EQ(cuda().mem_release(imported), kSuccess);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], &fabric, sizeof fabric), static_cast<ssize_t>(sizeof fabric));
    std::string output;
    EXPECT_EQ(run_part("importer", {pass(ends[0]), "FAKECUDA_FABRIC=1"}, &output), 0) << output;
    ASSERT_EQ(::write(ends[1], &fabric, sizeof fabric), static_cast<ssize_t>(sizeof fabric));
    EXPECT_EQ(run_part("not permitted", {pass(ends[0])}, &output), 0) << output;

    CUmemFabricHandle changed = fabric;
    changed.data[63] ^= 1;
    EXPECT_EQ(cuda().mem_import(&imported, &changed, kMemHandleTypeFabric), kErrorNotSupported);
    EXPECT_EQ(cuda().mem_unmap(pointer, kUnit), kSuccess);
    EXPECT_EQ(cuda().mem_release(handle), kSuccess);
    create();  // may get the same descriptor number, but is different memory
    EXPECT_EQ(cuda().mem_import(&imported, &fabric, kMemHandleTypeFabric), kErrorInvalidValue);
}

}  // namespace
}  // namespace fakecuda_test

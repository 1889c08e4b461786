// gshm-maker: allocates GPU memory whose fabric handles must outlive gshmd. The driver ends a fabric handle with the
// process that allocated the memory, and with the release of that memory there. This process therefore allocates the
// memory and keeps its own reference. It has no context, no mapping and no copies. It ends when no process holds the
// other end of its socket; gshmd and the keeper each hold one.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/fd.h"
#include "cuda/driver.h"
#include "maker/message.h"

namespace gshm::core::maker {
namespace {

using Handle = std::array<uint8_t, 64>;

class Maker {
public:
    void run() {
        Message request;
        while (receive(&request)) {
            switch (request.kind) {
                case Kind::make: make(request); break;
                case Kind::release: release(request); break;
                case Kind::list: list(request); break;
                default: return;  // not a message of gshmd
            }
        }
    }

private:
    static Message answer_to(const Message& request, Kind kind) {
        Message answer = {};
        answer.kind = kind;
        answer.number = request.number;
        answer.pid = getpid();
        answer.version = kVersion;
        return answer;
    }

    void make(const Message& request) {
        Message answer = answer_to(request, Kind::made);
        UniqueFd fd;
        answer.result = allocate(request, &answer.handles[0], &fd);
        if (answer.result == cuda::kSuccess) answer.count = 1;
        send(answer, fd.get());
    }

    int allocate(const Message& request, Handle* ret_handle, UniqueFd* ret_fd) {
        auto loaded = cuda::Driver::get();
        if (!loaded) return cuda::kErrorNoDevice;
        const cuda::Driver& driver = **loaded;
        cuda::CUmemAllocationProp properties = {};
        properties.type = cuda::kMemAllocationTypePinned;
        properties.requestedHandleTypes = static_cast<int>(request.handle_types);
        properties.location = {cuda::kMemLocationTypeDevice, find_device(driver, request.uuid)};
        properties.allocFlags.gpuDirectRDMACapable = request.rdma_capable;
        properties.allocFlags.compressionType = request.compressible;
        if (properties.location.id < 0) return cuda::kErrorInvalidDevice;
        cuda::CUmemGenericAllocationHandle memory = 0;
        if (int failed = driver.mem_create(&memory, request.size_bytes, &properties, 0)) return failed;
        int fd = -1;
        int result = driver.mem_export(&fd, memory, cuda::kMemHandleTypePosixFd, 0);
        if (result == cuda::kSuccess) {
            *ret_fd = UniqueFd::adopt(fd);
            result = driver.mem_export(ret_handle->data(), memory, cuda::kMemHandleTypeFabric, 0);
        }
        if (result == cuda::kSuccess) made_[*ret_handle] = memory;
        else driver.mem_release(memory);
        return result;
    }

    // By UUID: the ordinals of the requesting gshmd may differ. -1: not found.
    static cuda::CUdevice find_device(const cuda::Driver& driver, const std::array<uint8_t, 16>& uuid) {
        int count = 0;
        driver.device_get_count(&count);
        for (int ordinal = 0; ordinal < count; ++ordinal) {
            cuda::CUdevice device = 0;
            cuda::CUuuid found = {};
            if (driver.device_get(&device, ordinal) != cuda::kSuccess) continue;
            if (driver.device_get_uuid(&found, device) != cuda::kSuccess) continue;
            if (memcmp(found.bytes, uuid.data(), uuid.size()) == 0) return device;
        }
        return -1;
    }

    void release(const Message& request) {
        auto found = request.count == 1 ? made_.find(request.handles[0]) : made_.end();
        auto driver = cuda::Driver::get();
        if (found != made_.end() && driver) {
            (*driver)->mem_release(found->second);
            made_.erase(found);
        }
        send(answer_to(request, Kind::released), -1);
    }

    void list(const Message& request) {
        Message answer = answer_to(request, Kind::handles);
        for (const auto& [handle, memory] : made_) {
            answer.handles[answer.count++] = handle;
            if (answer.count < kMostHandles) continue;
            send(answer, -1);
            answer.count = 0;
        }
        send(answer, -1);
    }

    // gshmd may die at any time, and the next one continues to read: errors are ignored.
    static void send(const Message& message, int fd) {
        iovec part{const_cast<Message*>(&message), bytes_of(message)};
        Descriptors<1> space;
        msghdr out = {};
        out.msg_iov = &part;
        out.msg_iovlen = 1;
        if (fd >= 0) space.attach(out, {&fd, 1});
        while (sendmsg(kSocketFd, &out, MSG_NOSIGNAL) < 0 && errno == EINTR) {}
    }

    static bool receive(Message* message) {
        ssize_t got = 0;
        while ((got = recv(kSocketFd, message, sizeof *message, 0)) < 0 && errno == EINTR) {}
        return got >= static_cast<ssize_t>(kHeadBytes) && message->count <= kMostHandles &&
               static_cast<size_t>(got) == bytes_of(*message);
    }

    std::map<Handle, cuda::CUmemGenericAllocationHandle> made_;
};

}  // namespace
}  // namespace gshm::core::maker

int main(int argc, char** argv) {
    int type = 0;
    socklen_t length = sizeof type;
    const int fd = gshm::core::maker::kSocketFd;
    const bool started_by_gshmd = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
    if (argc != 1 || !started_by_gshmd) {
        fprintf(stderr,
                "gshm-maker allocates the GPU memory whose fabric handles outlive gshmd. gshmd starts it; it ends "
                "with `gshm shutdown`.\nusage: gshm-maker (with a socket as descriptor 3)\n");
        return argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) ? 0 : 2;
    }
    // Terminal signals must not end a process that has to survive.
    for (int ignored : {SIGHUP, SIGINT, SIGPIPE}) signal(ignored, SIG_IGN);
    // Starts the driver in advance, since that takes long.
    (void)gshm::core::cuda::Driver::get();
    gshm::core::maker::Maker().run();
    return 0;
}

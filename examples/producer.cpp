// Shares memory with another process without a daemon: allocates and fills it, exports it as a file descriptor and
// sends that to the consumer over a Unix socket. Start this first, then consumer.
//
// On a GPU the memory comes from the driver's VMM API, on host it is shared memory; the steps are the same. Exit
// status: 0 if the consumer verified the data, 1 if a step fails, 2 for a wrong command line, 130 after Ctrl-C.

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "fd_socket.h"
#include "local_device.h"
#include "options.h"
#include "pattern.h"
#include "plain_wire.h"
#include <gshm/gshm.hpp>

namespace {

struct Settings {
    std::string device;
    std::string socket_path;
    std::string wire = "gshm";
    bool counting = false;
    std::optional<std::chrono::seconds> timeout;
};

gshm::Object allocate_and_write(const gshm::DeviceInfo& device, Pattern pattern) {
    const uint64_t granularity = device.granularity_bytes ? device.granularity_bytes : 1;
    const uint64_t aligned_bytes = (kPatternBytes + granularity - 1) / granularity * granularity;
    std::printf("Memory granularity: %llu bytes\n", static_cast<unsigned long long>(granularity));
    std::printf("Buffer size: %zu bytes, aligned size: %llu bytes\n", kPatternBytes,
                static_cast<unsigned long long>(aligned_bytes));

    auto object = gshm::Object::allocate(device.name, kPatternBytes).value();  // does the next four steps
    std::printf("Created physical memory allocation\n");
    std::printf("Reserved virtual address space at %p\n", object.data());
    std::printf("Mapped physical memory to virtual address\n");
    std::printf("Set read/write access permissions\n");

    const auto numbers = make_pattern(pattern);
    std::printf("Generated %zu test integers\n", numbers.size());
    object.copy_in(numbers).value();
    std::printf("Copied test data to %s\n", is_cuda(device) ? "GPU" : "host memory");
    return object;
}

void share(const gshm::Object& object, const gshm::DeviceInfo& device, const Settings& settings) {
    const auto exported = object.export_fd().value();
    std::printf("Exported allocation as FD: %d\n", exported.fd.get());

    const bool plain = settings.wire == "plain";
    gshm::UniqueFd consumer;
    {
        Listener listener(settings.socket_path, plain ? SOCK_STREAM : SOCK_SEQPACKET);
        std::printf("Waiting for consumer connection...\n");
        const auto deadline = after(settings.timeout);
        consumer = plain ? listener.accept_peer(deadline) : listener.accept_consumer(deadline);
    }
    std::printf("Consumer connected\n");

    const auto answer_time = settings.timeout.value_or(kAnswerTime);
    if (plain) {
        plain_wire::send_offer(consumer.get(), exported.fd.get(), exported.info.extent_bytes);
        std::printf("Sent FD and size metadata to consumer\n");
        if (!plain_wire::receive_answer(consumer.get(), after(answer_time)))
            fail(EBADMSG, "the consumer read other data than was written");
        std::printf("Consumer verified data successfully!\n");
        return;
    }
    Offer offer;
    offer.extent_bytes = exported.info.extent_bytes;
    offer.offset = exported.info.offset;
    offer.size_bytes = exported.info.size_bytes;
    offer.count = kPatternCount;
    std::memcpy(offer.device, device.name, sizeof offer.device);
    std::memcpy(offer.uuid, device.uuid, sizeof offer.uuid);
    send_message(consumer.get(), offer, exported.fd.get());
    std::printf("Sent FD and size metadata to consumer\n");

    const auto ack = receive_message<Ack>(consumer.get(), after(answer_time));
    if (!ack.verified) fail(EBADMSG, "the consumer read other data than was written");
    std::printf("Consumer verified data successfully!\n");
}

void run(const Settings& settings) {
    std::printf("=== CUDA VMM Producer ===\n");
    const auto device = choose_device(settings.device);
    print_device(device);
    if (is_cuda(device)) {
        const bool supported = device.handle_kinds & GSHM_HANDLE_POSIX_FD;
        std::printf("VMM support: %s\n", supported ? "yes" : "no");
        if (!supported) fail(EOPNOTSUPP, "this GPU or its driver cannot export memory as a file descriptor");
    }
    const auto object = allocate_and_write(device, settings.counting ? Pattern::counting : Pattern::mixed);
    share(object, device, settings);
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    Options("Writes 262144 integers into shared memory and passes it to a consumer.")
        .text("--device", settings.device, "cuda:0, host, ...; default: the first GPU, else host")
        .text("--socket", settings.socket_path, "where to wait; default: " + default_socket_path())
        .text("--wire", settings.wire, kWireHelp)
        .flag("--count", settings.counting, "write the integers 0, 1, 2, ... instead of mixed ones")
        .seconds("--timeout", settings.timeout, "seconds to wait for the consumer; default: for ever")
        .parse(argc, argv);
    choose_wire("producer", settings.wire, settings.socket_path);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // shows each step when it is done, also through a pipe
    try {
        run(settings);
    } catch (const gshm::Exception& exception) {
        std::fprintf(stderr, "producer: %s\n", exception.what());
        return exception.error().code == EINTR ? 130 : 1;
    }
    std::printf("Cleanup complete\n");  // run() has released memory, descriptors and socket file
    return 0;
}

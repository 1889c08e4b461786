// Reads the memory that producer shares: connects to it, receives the file descriptor, imports and maps the memory,
// checks the numbers and acknowledges them. Needs no daemon.
//
// Exit status: 0 if the data is correct, 1 if it is not or a step fails, 2 for a wrong command line. A signal may end
// it at any time, since nothing it makes outlives it.

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
    std::optional<std::chrono::seconds> timeout = kAnswerTime;
};

// Data from another process is checked before use.
void check_offer(Offer& offer, const gshm::DeviceInfo& device) {
    offer.device[sizeof offer.device - 1] = '\0';
    offer.uuid[sizeof offer.uuid - 1] = '\0';
    if (offer.version != Offer().version) fail(EPROTO, "the producer is of another version");
    if (offer.size_bytes != kPatternBytes || offer.count != kPatternCount)
        fail(EPROTO, "the producer offers " + std::to_string(offer.size_bytes) + " bytes instead of " +
                         std::to_string(kPatternBytes));
    if (offer.extent_bytes < offer.size_bytes || offer.offset > offer.extent_bytes - offer.size_bytes)
        fail(EPROTO, "the producer's sizes do not fit together");
    if (std::string_view(offer.uuid) != device.uuid)
        fail(ENODEV, std::string("the producer's memory is on ") + offer.device +
                         (*offer.uuid ? std::string(" (") + offer.uuid + ")" : "") + " and not on this consumer's " +
                         device.name + "; choose the same for both with --device");
}

// Returns whether all numbers are correct. Other programs may write the integers 0, 1, 2, ...
bool read_and_verify(const gshm::DeviceInfo& device, const gshm::UniqueFd& fd, const Offer& offer, bool may_count) {
    auto info = gshm::HandleInfo{};
    info.kind = GSHM_HANDLE_POSIX_FD;
    info.extent_bytes = offer.extent_bytes;
    info.offset = offer.offset;
    info.size_bytes = offer.size_bytes;
    auto object = gshm::Object::import_fd(device.name, fd.get(), info, true).value();  // does the next four steps
    std::printf("Imported allocation handle from FD\n");
    std::printf("Reserved virtual address space at %p\n", object.data());
    std::printf("Mapped imported memory to virtual address\n");
    std::printf("Set read/write access permissions\n");

    std::vector<uint32_t> numbers(kPatternCount);
    object.copy_out(numbers).value();
    std::printf("Copied %zu bytes from %s\n", kPatternBytes, is_cuda(device) ? "GPU to host" : "shared host memory");
    const bool counts = may_count && !first_difference(numbers, Pattern::counting);
    if (const auto index = first_difference(numbers); index && !counts) {
        std::printf("Data verification FAILED (integer %zu is 0x%08x instead of 0x%08x)\n", *index, numbers[*index],
                    pattern_at(*index));
        return false;
    }
    std::printf("Data verification PASSED (%zu integers verified)\n", numbers.size());
    return true;
}

bool run(const Settings& settings) {
    std::printf("=== CUDA VMM Consumer ===\n");
    const auto device = choose_device(settings.device);
    print_device(device);

    const bool plain = settings.wire == "plain";
    std::printf("Connecting to producer...\n");
    const auto producer =
        plain ? connect_to(settings.socket_path, SOCK_STREAM) : connect_to_producer(settings.socket_path);
    std::printf("Connected to producer\n");

    gshm::UniqueFd fd;
    Offer offer;
    if (plain) {
        offer.extent_bytes = plain_wire::receive_offer(producer.get(), after(settings.timeout), &fd);
        offer.size_bytes = kPatternBytes;
        offer.count = kPatternCount;
        std::memcpy(offer.uuid, device.uuid, sizeof offer.uuid);  // the plain wire does not say which GPU it is
    } else {
        offer = receive_message<Offer>(producer.get(), after(settings.timeout), &fd);
    }
    std::printf("Received FD: %d, size: %llu bytes\n", fd.get(), static_cast<unsigned long long>(offer.extent_bytes));
    check_offer(offer, device);

    const bool verified = read_and_verify(device, fd, offer, plain);
    if (plain) {
        if (!verified) return false;  // the producer sees the end of the connection
        send_message(producer.get(), plain_wire::kCorrect);
    } else {
        Ack ack;
        ack.verified = verified;
        send_message(producer.get(), ack);
    }
    std::printf("Sent acknowledgment to producer\n");
    return verified;
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    Options("Reads and checks the integers that a producer shares.")
        .text("--device", settings.device, "cuda:0, host, ...; default: the first GPU, else host")
        .text("--socket", settings.socket_path, "where the producer waits; default: " + default_socket_path())
        .text("--wire", settings.wire, kWireHelp)
        .seconds("--timeout", settings.timeout, "seconds to wait for the producer's answer; default: 30")
        .parse(argc, argv);
    choose_wire("consumer", settings.wire, settings.socket_path);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // shows each step when it is done, also through a pipe
    try {
        const bool verified = run(settings);
        std::printf("Cleanup complete\n");  // run() has released memory, descriptors and connection
        return verified ? 0 : 1;
    } catch (const gshm::Exception& exception) {
        std::fprintf(stderr, "consumer: %s\n", exception.what());
        return 1;
    }
}

// The wire of other programs that share CUDA memory this way (`--wire plain`), without names, versions or checks:
//
//   producer -> consumer  one byte 'X' with the descriptor (SCM_RIGHTS)
//   producer -> consumer  eight bytes: the aligned size, in native byte order
//   consumer -> producer  one byte 'A' when the data is correct
//
// A stream socket, at a fixed path. The descriptor is that of the whole memory; the numbers begin at its start.
#pragma once

#include <string>

#include "fd_socket.h"

namespace plain_wire {

inline constexpr char kOffer = 'X';
inline constexpr char kCorrect = 'A';

inline std::string default_socket_path() {
    const char* folder = std::getenv("TMPDIR");
    return std::string(folder && *folder ? folder : "/tmp") + "/cuda_vmm_test.sock";
}

// Reads that many bytes of the stream, and the descriptor among them if ret_fd is not null.
inline void receive(int socket, void* ret_bytes, size_t count, const Deadline& deadline,
                    gshm::UniqueFd* ret_fd = nullptr) {
    auto* at = static_cast<char*>(ret_bytes);
    while (count > 0) {
        wait_readable(socket, deadline);
        Received received = receive_arrived(socket, at, count);
        if (received.fd && ret_fd) *ret_fd = std::move(received.fd);
        at += received.bytes;
        count -= received.bytes;
    }
}

inline void send_offer(int socket, int fd, uint64_t aligned_bytes) {
    send_message(socket, kOffer, fd);
    send_message(socket, aligned_bytes);
}

// Returns the aligned size.
inline uint64_t receive_offer(int socket, const Deadline& deadline, gshm::UniqueFd* ret_fd) {
    char first = 0;
    receive(socket, &first, 1, deadline, ret_fd);
    if (!*ret_fd) fail(EPROTO, "the producer sent no descriptor");
    uint64_t aligned_bytes = 0;
    receive(socket, &aligned_bytes, sizeof aligned_bytes, deadline);
    return aligned_bytes;
}

inline bool receive_answer(int socket, const Deadline& deadline) {
    char answer = 0;
    receive(socket, &answer, 1, deadline);
    return answer == kCorrect;
}

}  // namespace plain_wire

inline constexpr const char* kWireHelp =
    "gshm, or plain: one byte with the descriptor, the aligned size, one byte back; default socket then: "
    "cuda_vmm_test.sock in the folder for temporary files";

// Checks --wire, and fills in the socket that belongs to it. Ends the program if there is no such wire.
inline void choose_wire(const char* program, const std::string& wire, std::string& socket_path) {
    if (wire != "gshm" && wire != "plain") {
        std::fprintf(stderr, "%s: --wire is gshm or plain, not %s\n", program, wire.c_str());
        std::exit(2);
    }
    if (socket_path.empty()) socket_path = wire == "plain" ? plain_wire::default_socket_path() : default_socket_path();
}

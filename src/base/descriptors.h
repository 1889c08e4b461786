// Descriptors in a message of a Unix socket (SCM_RIGHTS). Header only and without allocation, since gshm-keeper, which
// links no libraries, uses it too.
#pragma once

#include <cstring>
#include <span>
#include <sys/socket.h>

namespace gshm::core {

// Control data with room for kMost descriptors. Must outlive the use of the message header.
template <size_t kMost>
class Descriptors {
public:
    // Attaches at most kMost descriptors for sending. Without descriptors the message is unchanged.
    void attach(msghdr& message, std::span<const int> descriptors) {
        if (descriptors.empty()) return;
        message.msg_control = space_;
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    }
    // Called before a message is received.
    void prepare(msghdr& message) {
        message.msg_control = space_;
        message.msg_controllen = sizeof space_;
    }
    // Calls take(fd) for each received descriptor. The caller owns them.
    template <typename Take>
    static void for_each(const msghdr& message, Take take) {
        auto* whole = const_cast<msghdr*>(&message);
        for (cmsghdr* header = CMSG_FIRSTHDR(whole); header != nullptr; header = CMSG_NXTHDR(whole, header)) {
            if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
            const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < count; ++i) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
                take(fd);
            }
        }
    }

private:
    alignas(cmsghdr) char space_[CMSG_SPACE(kMost * sizeof(int))];
};

}  // namespace gshm::core

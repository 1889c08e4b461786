#include "fuse/connection.h"

#include <cerrno>
#include <string>
#include <unistd.h>

#include "base/log.h"

namespace gshm::core::fuse {

bool Connection::write(std::span<const iovec> parts) {
    // A lost answer is not requested again, so a lack of memory is retried for a while.
    for (int tries = 0;; ++tries) {
        if (writev(fd_.get(), parts.data(), static_cast<int>(parts.size())) >= 0) return true;
        bool passes = errno == EINTR || errno == EAGAIN || errno == ENOMEM;
        if (!passes || tries == 1000) return false;
        if (errno == ENOMEM) usleep(1000);
    }
}

void Connection::send(std::span<const iovec> parts) {
    if (write(parts)) return;
    // ENOENT: the caller was interrupted and needs no answer. ENODEV: unmounted. EFAULT: a process has truncated the
    // file through its own descriptor, and the kernel has returned EIO to the caller.
    if (errno != ENOENT && errno != ENODEV && errno != EFAULT) {
        log_error("an answer to the kernel was refused: {}", strerror(errno));
    }
}

Result<int32_t> Connection::open_backing(int fd) {
    BackingMap map{fd, 0, 0};
    int id = ioctl(fd_.get(), kBackingOpen, &map);
    if (id <= 0) return fail_errno("cannot hand a file to the kernel");
    return id;
}

void Connection::close_backing(int32_t id) {
    auto number = static_cast<uint32_t>(id);
    ioctl(fd_.get(), kBackingClose, &number);
}

std::string Connection::message(int32_t code, std::string_view body) {
    fuse_out_header out = {};
    out.error = code;
    out.len = static_cast<uint32_t>(sizeof out + body.size());
    std::string bytes(reinterpret_cast<const char*>(&out), sizeof out);
    bytes.append(body);
    return bytes;
}

// For notices that take no lock in the kernel, and do not block.
bool Connection::tell_now(int32_t code) {
    std::string bytes = message(code, {});
    const iovec part{bytes.data(), bytes.size()};
    return write({&part, 1});
}

bool Connection::forget_names() {
    return tell_now(kNotifyForgetNames);
}

void Connection::resend() {
    if (!tell_now(kNotifyResend))
        log_error("the kernel does not send again what was not answered: {}", strerror(errno));
}

void Connection::forget_entry(uint64_t parent, std::string_view name) {
    fuse_notify_inval_entry_out out = {};
    out.parent = parent;
    out.namelen = static_cast<uint32_t>(name.size());
    std::string body(reinterpret_cast<const char*>(&out), sizeof out);
    body.append(name).push_back('\0');
    notices_.tell(message(FUSE_NOTIFY_INVAL_ENTRY, body));
}

std::string Connection::attributes_message(uint64_t node) {
    fuse_notify_inval_inode_out out = {};
    out.ino = node;
    out.off = -1;  // attributes only
    return message(FUSE_NOTIFY_INVAL_INODE, {reinterpret_cast<const char*>(&out), sizeof out});
}

void Connection::forget_attributes(uint64_t node) {
    notices_.tell(attributes_message(node));
}

void Connection::survey(std::vector<uint64_t> nodes, std::function<void(const std::vector<uint64_t>&)> on_unknown) {
    std::vector<std::string> messages;
    for (uint64_t node : nodes) messages.push_back(attributes_message(node));
    auto on_told = [nodes = std::move(nodes), on_unknown = std::move(on_unknown)](const std::vector<int>& errors) {
        std::vector<uint64_t> unknown;
        for (size_t i = 0; i < nodes.size(); ++i) {
            if (errors[i] == ENOENT) unknown.push_back(nodes[i]);
        }
        on_unknown(unknown);
    };
    notices_.ask(std::move(messages), std::move(on_told));
}

}  // namespace gshm::core::fuse

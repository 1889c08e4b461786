#include "fuse/connection.h"

#include <cerrno>
#include <future>
#include <string>
#include <unistd.h>

#include "base/log.h"

namespace gshm::fuse {

bool Connection::write(std::span<const iovec> parts) {
    // Nobody asks again for what was not written, so a want of memory is waited for a while.
    for (int tries = 0;; ++tries) {
        if (writev(fd_.get(), parts.data(), static_cast<int>(parts.size())) >= 0) return true;
        bool passes = errno == EINTR || errno == EAGAIN || errno == ENOMEM;
        if (!passes || tries == 1000) return false;
        if (errno == ENOMEM) usleep(1000);
    }
}

void Connection::send(std::span<const iovec> parts) {
    if (write(parts)) return;
    // ENOENT: the caller was interrupted and wants no answer; ENODEV: unmounted. EFAULT: bytes that somebody has cut off
    // with a descriptor of their own; the kernel has told the caller EIO.
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

bool Connection::notify(int32_t code, std::span<const iovec> parts) {
    fuse_out_header out = {};
    out.error = code;
    std::vector<iovec> all{{&out, sizeof out}};
    out.len = sizeof out;
    for (const iovec& part : parts) {
        all.push_back(part);
        out.len += static_cast<uint32_t>(part.iov_len);
    }
    // ENOENT: it remembers nothing of the kind.
    return write(all);
}

bool Connection::forget_names() {
    return notify(kNotifyForgetNames, {});
}

void Connection::resend() {
    if (!notify(kNotifyResend, {})) log_error("the kernel does not send again what was not answered: {}", strerror(errno));
}

void Connection::finish_notices() {
    quiet_ = true;
    std::promise<void> reached;
    notices_.submit([&] { reached.set_value(); });
    reached.get_future().wait();
}

void Connection::forget_entry(uint64_t parent, std::string_view name) {
    if (quiet_) return;
    notices_.submit([this, parent, text = std::string(name)] {
        fuse_notify_inval_entry_out out = {};
        out.parent = parent;
        out.namelen = static_cast<uint32_t>(text.size());
        const iovec parts[] = {{&out, sizeof out}, {const_cast<char*>(text.c_str()), text.size() + 1}};
        notify(FUSE_NOTIFY_INVAL_ENTRY, parts);
    });
}

bool Connection::forget_attributes_now(uint64_t node) {
    fuse_notify_inval_inode_out out = {};
    out.ino = node;
    out.off = -1;  // of its bytes, none
    const iovec parts[] = {{&out, sizeof out}};
    return notify(FUSE_NOTIFY_INVAL_INODE, parts);
}

void Connection::forget_attributes(uint64_t node) {
    if (quiet_) return;
    notices_.submit([this, node] { forget_attributes_now(node); });
}

void Connection::survey(std::vector<uint64_t> nodes, std::function<void(const std::vector<uint64_t>&)> on_unknown) {
    if (quiet_) return;
    notices_.submit([this, nodes = std::move(nodes), on_unknown = std::move(on_unknown)] {
        std::vector<uint64_t> unknown;
        for (uint64_t node : nodes) {
            if (!forget_attributes_now(node) && errno == ENOENT) unknown.push_back(node);
        }
        on_unknown(unknown);
    });
}

}  // namespace gshm::fuse

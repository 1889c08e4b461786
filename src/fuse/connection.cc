#include "fuse/connection.h"

#include <cerrno>
#include <string>
#include <unistd.h>

#include "base/log.h"

namespace gshm::fuse {

bool Connection::send(std::span<const iovec> parts) {
    ssize_t sent = writev(fd_.get(), parts.data(), static_cast<int>(parts.size()));
    if (sent >= 0) return true;
    if (errno == EFAULT) return false;
    // ENOENT: the caller was interrupted and wants no answer; ENODEV: unmounted.
    if (errno != ENOENT && errno != ENODEV) log_error("an answer to the kernel was refused: {}", strerror(errno));
    return true;
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

void Connection::notify(int32_t code, std::span<const iovec> parts) {
    fuse_out_header out = {};
    out.error = code;
    std::vector<iovec> all{{&out, sizeof out}};
    out.len = sizeof out;
    for (const iovec& part : parts) {
        all.push_back(part);
        out.len += static_cast<uint32_t>(part.iov_len);
    }
    // ENOENT: it remembers nothing of the kind.
    [[maybe_unused]] ssize_t sent = writev(fd_.get(), all.data(), static_cast<int>(all.size()));
}

void Connection::forget_entry(uint64_t parent, std::string_view name) {
    notices_.submit([this, parent, text = std::string(name)] {
        fuse_notify_inval_entry_out out = {};
        out.parent = parent;
        out.namelen = static_cast<uint32_t>(text.size());
        const iovec parts[] = {{&out, sizeof out}, {const_cast<char*>(text.c_str()), text.size() + 1}};
        notify(FUSE_NOTIFY_INVAL_ENTRY, parts);
    });
}

void Connection::forget_attributes(uint64_t node) {
    forget_range(node, -1);
}

void Connection::forget_bytes(uint64_t node) {
    forget_range(node, 0);
}

void Connection::forget_range(uint64_t node, int64_t offset) {
    notices_.submit([this, node, offset] {
        fuse_notify_inval_inode_out out = {};
        out.ino = node;
        out.off = offset;
        const iovec parts[] = {{&out, sizeof out}};
        notify(FUSE_NOTIFY_INVAL_INODE, parts);
    });
}

}  // namespace gshm::fuse

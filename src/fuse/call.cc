#include "fuse/call.h"

#include <fmt/core.h>

#include "base/failure_log.h"
#include "base/log.h"
#include "fuse/operation_counters.h"

namespace gshm::core::fuse {

std::string_view name_of(uint32_t opcode) {
    switch (opcode) {
        case FUSE_LOOKUP: return "lookup";
        case FUSE_GETATTR: return "getattr";
        case FUSE_SETATTR: return "setattr";
        case FUSE_STATFS: return "statfs";
        case FUSE_READLINK: return "readlink";
        case FUSE_SYMLINK: return "symlink";
        case FUSE_MKNOD: return "mknod";
        case FUSE_MKDIR: return "mkdir";
        case FUSE_UNLINK: return "unlink";
        case FUSE_RMDIR: return "rmdir";
        case FUSE_RENAME:
        case FUSE_RENAME2: return "rename";
        case FUSE_LINK: return "link";
        case FUSE_READDIR:
        case FUSE_READDIRPLUS: return "readdir";
        case FUSE_SETXATTR: return "setxattr";
        case FUSE_GETXATTR: return "getxattr";
        case FUSE_LISTXATTR: return "listxattr";
        case FUSE_REMOVEXATTR: return "removexattr";
        case FUSE_OPEN: return "open";
        case FUSE_CREATE: return "create";
        case FUSE_TMPFILE: return "tmpfile";
        case FUSE_RELEASE: return "release";
        case FUSE_READ: return "read";
        case FUSE_WRITE: return "write";
        case FUSE_FALLOCATE: return "fallocate";
        case FUSE_LSEEK: return "lseek";
        case FUSE_COPY_FILE_RANGE: return "copy_file_range";
        default: return {};
    }
}

void log_failure(const fuse_in_header& request, std::string_view name, const Error& error) {
    if (is_expected_failure(error.code) && !log_enabled(LogLevel::debug)) return;
    const auto known = name_of(request.opcode);
    core::log_failure(
        {static_cast<pid_t>(request.pid), request.uid,
         fmt::format("mount: {} at file {}",
                     known.empty() ? fmt::format("request {}", request.opcode) : std::string(known), request.nodeid),
         name},
        error.code, error.message);
}

}  // namespace gshm::core::fuse

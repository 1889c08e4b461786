#include "cli/support/failure.h"

#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "cli/support/text.h"

namespace gshm::cli {
namespace {

std::string default_hint(int code) {
    switch (code) {
        case ENOENT: return "`gshm ls -r` lists the names there are";
        case EEXIST: return "choose another name, or remove that one with `gshm rm`";
        case EISDIR: return "name an object in it; `gshm ls` lists them";
        case ENOSPC:
        case ENOMEM: return "`gshm df` shows the free memory; `gshm rm` frees objects that no process holds";
        case EACCES: return "`gshm stat` shows its owner and its mode";
        case ECONNRESET:
        case ECONNREFUSED:
        case ENOTCONN:
        case ESTALE:
        case EPIPE: return "see with `gshm ping` whether gshmd runs, and start it with `gshmd`";
        default: return {};
    }
}

}  // namespace

ExitCode Failure::exit_code_of(int code) {
    switch (code) {
        case EINVAL:
        case EILSEQ:
        case ENAMETOOLONG:
        case ERANGE: return ExitCode::usage;
        case ECONNREFUSED:
        case ECONNRESET:
        case ENOTCONN:
        case EPIPE:
        case ESTALE:
        case EPROTO: return ExitCode::no_daemon;
        case ENOENT:
        case ENODATA:
        case ENODEV:
        case ENXIO: return ExitCode::not_found;
        case EACCES:
        case EPERM:
        case EROFS: return ExitCode::permission;
        case EEXIST: return ExitCode::exists;
        case ENOSPC:
        case ENOMEM:
        case EDQUOT:
        case E2BIG:
        case EFBIG: return ExitCode::no_space;
        case ETIMEDOUT: return ExitCode::timed_out;
        case EBUSY:
        case EISDIR:
        case ENOTDIR:
        case ENOTEMPTY:
        case EOPNOTSUPP: return ExitCode::wrong_state;
        default: return ExitCode::failed;
    }
}

Failure Failure::usage(const std::string& message, std::string hint) {
    return {EINVAL, ExitCode::usage, message, std::move(hint)};
}

Failure Failure::of_error(const Error& error, std::string_view subject, std::string hint) {
    const int code = error.code;
    std::string message = error.message;
    // The library puts names in quotes.
    if (!subject.empty() && message.find(fmt::format("\"{}\"", subject)) == std::string::npos)
        message = fmt::format("{}: {}", printable(subject), message);
    return {code, message, hint.empty() ? default_hint(code) : std::move(hint)};
}

Failure Failure::of_errno(std::string_view what) {
    const int code = errno;
    return of_file(code, fmt::format("{}: {}", printable(what), std::strerror(code)));
}

Failure Failure::of_file(int code, const std::string& message, std::string hint) {
    auto exit_code = exit_code_of(code);
    if (exit_code == ExitCode::no_daemon || exit_code == ExitCode::usage) exit_code = ExitCode::failed;
    return {code, exit_code, printable(message), std::move(hint)};
}

void check(int status, std::string_view subject) {
    if (status < 0) throw Failure::of_error(detail::last_error(status), subject);
}

std::string errno_name(int code) {
    const char* name = ::strerrorname_np(code);
    return name ? name : std::to_string(code);
}

}  // namespace gshm::cli

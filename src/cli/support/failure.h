// Errors of the command line: a command throws a Failure, main() prints it and exits with its code. (Exceptions, unlike
// in the rest of the tree: only the user at the shell can handle an error of a command.)
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <gshm/gshm.hpp>

namespace gshm::cli {

// Aliases of the library's types, which differ from those of the snapshot format.
using gshm::Error;
using gshm::Result;
using gshm::UniqueFd;

// Documented in docs/cli.md and in `gshm --help`: part of the interface.
enum class ExitCode {
    ok = 0,
    failed = 1,
    usage = 2,
    no_daemon = 3,
    not_found = 4,
    permission = 5,
    exists = 6,
    no_space = 7,
    timed_out = 8,
    wrong_state = 9,
    incomplete = 10,
};

class Failure : public std::runtime_error {
public:
    // code: a positive errno. hint: the next step for the user, a clause without a full stop; may be empty.
    Failure(int code, const std::string& message, std::string hint = {})
        : Failure(code, exit_code_of(code), message, std::move(hint)) {}
    Failure(int code, ExitCode exit_code, const std::string& message, std::string hint = {})
        : std::runtime_error(message), code_(code), exit_code_(exit_code), hint_(std::move(hint)) {}

    static Failure usage(const std::string& message, std::string hint = {});
    // The failure of a library call: its message, with the subject (a name; may be empty) in front unless it is already
    // there.
    static Failure of_error(const Error& error, std::string_view subject, std::string hint = {});
    // The failure of a system call, from errno.
    static Failure of_errno(std::string_view what);
    // The failure of a file or a pipe, not of the daemon or the command line. code: an errno.
    static Failure of_file(int code, const std::string& message, std::string hint = {});

    int code() const { return code_; }
    ExitCode exit_code() const { return exit_code_; }
    const std::string& hint() const { return hint_; }

private:
    static ExitCode exit_code_of(int code);

    int code_;
    ExitCode exit_code_;
    std::string hint_;
};

// The value of a library call, or its error thrown.
template <typename T>
T check(Result<T> result, std::string_view subject) {
    if (!result) throw Failure::of_error(result.error(), subject);
    if constexpr (!std::is_void_v<T>) return *std::move(result);
}
// For calls of the C interface that gshm.hpp does not wrap.
void check(int status, std::string_view subject);

// "ENOENT"; the number if it has no name.
std::string errno_name(int code);

}  // namespace gshm::cli

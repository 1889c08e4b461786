// Result<T> is a value or an Error; TRY unwraps one or returns its error to the caller.
#pragma once

#include <cerrno>
#include <expected>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace gshm::core {

// errno for programs, a sentence for people. `device_lost` marks errors after which the device cannot be used again.
struct Error {
    int code = EIO;
    std::string message;
    bool device_lost = false;
};

template <typename T>
using Result = std::expected<T, Error>;

using Status = Result<void>;

template <typename... Args>
[[nodiscard]] std::unexpected<Error> fail(int code, fmt::format_string<Args...> format, Args&&... args) {
    return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// The failure of a system call, taken from errno.
[[nodiscard]] std::unexpected<Error> fail_errno(const char* what);
[[nodiscard]] std::unexpected<Error> fail_errno(const char* what, int code);

}  // namespace gshm::core

// A statement expression (GCC and clang): `auto fd = TRY(open_it());`, `TRY(check());`.
#define TRY(expression)                                                           \
    ({                                                                            \
        auto try_result_ = (expression);                                          \
        if (!try_result_) return std::unexpected(std::move(try_result_.error())); \
        std::move(try_result_).value();                                           \
    })

// The part of torch that a failed gshm_malloc() meets, as three libraries with torch's names. libgshm finds the symbols by
// name, as in a process that has imported torch.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace c10 {

struct SourceLocation {
    const char* function;
    const char* file;
    uint32_t line;
};

class Error : public std::exception {
public:
    Error(SourceLocation where, std::string message);
    const char* what() const noexcept override { return what_.c_str(); }
    virtual const char* what_without_backtrace() const noexcept { return message_.c_str(); }

private:
    std::string message_;
    std::string what_;
};

class OutOfMemoryError : public Error {
    using Error::Error;
};

}  // namespace c10

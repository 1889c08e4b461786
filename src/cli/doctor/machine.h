// The kernel's files about this machine, for `gshm doctor`. All paths are below a root, so that a test can simulate a
// machine: GSHM_DOCTOR_ROOT names a folder with its own /proc, /sys, /dev and /etc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gshm::cli {

class Machine {
public:
    explicit Machine(std::string root) : root_(std::move(root)) {}
    static Machine from_environment();

    // The path in our file system of a path of the machine.
    std::string at(std::string_view path) const { return root_ + std::string(path); }
    bool exists(std::string_view path) const;
    // Without trailing white space; nullopt if the file cannot be read.
    std::optional<std::string> read(std::string_view path) const;
    std::optional<int64_t> read_number(std::string_view path) const;
    // Sorted, without "." and ".."; empty if the folder cannot be read.
    std::vector<std::string> list(std::string_view path) const;
    // The target of a path with symbolic links, as a path of the machine; "" if there is none.
    std::string resolve(std::string_view path) const;

    bool kernel_at_least(int major, int minor) const;
    std::string kernel() const;

    // A row of /proc/PID/limits ("Max open files"); UINT64_MAX is unlimited. nullopt if it cannot be read.
    struct Limit {
        uint64_t soft;
        uint64_t hard;
    };
    std::optional<Limit> limit(std::string_view process, std::string_view row) const;
    // Whether a process ("self", "1234") has a capability, given by its number.
    bool has_capability(std::string_view process, int capability) const;
    // The major number of a character device driver, from /proc/devices.
    std::optional<int> device_major(std::string_view driver) const;
    bool module_loaded(std::string_view name) const;

private:
    std::string root_;
};

// Lines of a text, without newlines.
std::vector<std::string> lines_of(const std::string& text);
// Words of a line, split at white space.
std::vector<std::string> words_of(const std::string& line);

}  // namespace gshm::cli

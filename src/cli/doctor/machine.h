// The kernel's files about this machine, for `gshm doctor`. All of them are looked up below a root, so that a test
// shows a machine that is not there: GSHM_DOCTOR_ROOT names a folder with a /proc, /sys, /dev and /etc of its own.
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

    // Where a path of the machine is for us.
    std::string at(std::string_view path) const { return root_ + std::string(path); }
    bool exists(std::string_view path) const;
    // Without blanks and newlines at the end; nothing if it cannot be read.
    std::optional<std::string> read(std::string_view path) const;
    std::optional<int64_t> read_number(std::string_view path) const;
    // Entries of a folder in their order, without "." and ".."; none if it cannot be read.
    std::vector<std::string> list(std::string_view path) const;
    // Where a path of links leads, as a path of the machine; "" if nowhere.
    std::string resolve(std::string_view path) const;

    // The kernel's version is at least that.
    bool kernel_at_least(int major, int minor) const;
    std::string kernel() const;

    // A row of /proc/PID/limits ("Max open files"); UINT64_MAX is unlimited. Nothing if it is not told.
    struct Limit {
        uint64_t soft;
        uint64_t hard;
    };
    std::optional<Limit> limit(std::string_view process, std::string_view row) const;
    // Whether that process ("self", "1234") has a capability, by its number.
    bool has_capability(std::string_view process, int capability) const;
    // The number that /proc/devices has for a driver of character devices.
    std::optional<int> device_major(std::string_view driver) const;
    bool module_loaded(std::string_view name) const;

private:
    std::string root_;
};

// Lines of a text, without their newlines.
std::vector<std::string> lines_of(const std::string& text);
// Parts between blanks.
std::vector<std::string> words_of(const std::string& line);

}  // namespace gshm::cli

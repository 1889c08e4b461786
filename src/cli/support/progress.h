// A progress line on the terminal for a large copy.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gshm::cli {

class Progress {
public:
    // Silent unless enabled, standard error is a terminal and the copy is large. total_bytes 0: unknown.
    Progress(std::string what, uint64_t total_bytes, bool enabled);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();  // clears the line

    void update(uint64_t done_bytes);
    void clear();            // before other output
    double seconds() const;  // since the constructor

private:
    using Clock = std::chrono::steady_clock;

    std::string what_;
    uint64_t total_bytes_;
    bool visible_;
    bool shows_ = false;  // a line is on the terminal
    Clock::time_point begin_ = Clock::now();
    Clock::time_point shown_ = begin_;
};

}  // namespace gshm::cli

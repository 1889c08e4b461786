// One line on the terminal that shows how far a large copy is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gshm::cli {

class Progress {
public:
    // Silent unless enabled, standard error is a terminal and the copy is a large one. total_bytes 0: nobody knows it
    // yet.
    Progress(std::string what, uint64_t total_bytes, bool enabled);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();  // clears the line

    void update(uint64_t done_bytes);
    void clear();            // the line, for something else to be printed
    double seconds() const;  // since it began

private:
    using Clock = std::chrono::steady_clock;

    std::string what_;
    uint64_t total_bytes_;
    bool visible_;
    bool shows_ = false;  // there is a line to clear
    Clock::time_point begin_ = Clock::now();
    Clock::time_point shown_ = begin_;
};

}  // namespace gshm::cli

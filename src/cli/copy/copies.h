// What put and get have in common: many copies at once, each with its failure, under one line of progress.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/support/context.h"
#include "cli/support/job.h"

namespace gshm::cli {

// Bytes that came or went through a pipe, and through the daemon's socket. Beside GSHM_PATH_... of the library.
inline constexpr uint32_t kPathStream = uint32_t{1} << 31;
// "direct", "cached", "staged", "hole", "cufile", "threads", "stream"
std::vector<std::string> path_words(uint32_t path);

// One that is done.
struct Copied {
    std::string name;
    std::string file;
    uint64_t bytes = 0;
    double seconds = 0;
    uint32_t path = 0;
    Record record() const;
};

// Thrown where a copy ends because the whole job does; nobody needs to be told.
struct Stopped {};

// How one copy tells how far it is, and hears that it is to end. With verify a byte is half done when it is there, and
// done when it has been compared.
class CopyWatch {
public:
    // advance: so many more bytes are done; false: stop.
    CopyWatch(std::function<bool(uint64_t)> advance, bool verify) : advance_(std::move(advance)), verify_(verify) {}
    CopyWatch(const CopyWatch&) = delete;
    CopyWatch& operator=(const CopyWatch&) = delete;

    bool verify() const { return verify_; }
    // For the library; they refer to this watch.
    gshm_transfer_options options();
    // All in all, of the copy. They throw Stopped.
    void moved(uint64_t bytes);
    void compared(uint64_t total_bytes, uint64_t bytes);
    void throw_if_stopping() { moved(moved_); }

private:
    bool reach(uint64_t done);

    std::function<bool(uint64_t)> advance_;
    bool verify_;
    uint64_t moved_ = 0;
    uint64_t told_ = 0;
};

// Large ones one after the other, each of which fills the bus; small ones a few at a time, since those wait for the
// daemon and the disk. Each thread has one connection, whatever it copies.
class Copies {
public:
    // sizes: of each copy. what: for the line of progress.
    Copies(Context& context, const std::string& what, std::vector<uint64_t> sizes, bool verify,
           Job::Clearing clearing = Job::Clearing::by_threads);

    // Calls copy(client, index, watch) for each; what it throws as a Failure is that one's alone unless the daemon is
    // gone. Throws Interrupted.
    using Copy = std::function<Copied(gshm_client*, size_t, CopyWatch&)>;
    void run(const Copy& copy);

    // In the order of the sizes; nothing where a copy has failed.
    const std::vector<std::optional<Copied>>& done() const { return done_; }
    int exit_code() const { return job_.exit_code(); }
    double seconds() const { return job_.seconds(); }

private:
    void run_one(gshm_client* client, size_t index, const Copy& copy);

    Context& context_;
    std::vector<uint64_t> sizes_;
    bool verify_;
    Job job_;
    std::vector<std::optional<Copied>> done_;
};

// What was done, as JSON: of one copy that stands for itself its record, else all of them.
void print_copies(const Context& context, const std::vector<Copied>& copies, bool single, double seconds);

}  // namespace gshm::cli

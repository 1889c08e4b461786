// The copying common to put and get: parallel copies, a failure for each one, and one progress line.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/support/context.h"
#include "cli/support/job.h"

namespace gshm::cli {

// Words for GSHM_PATH_... bits: "direct", "cached", "staged", "hole", "cufile", "threads", "stream".
std::vector<std::string> path_words(uint32_t path);

// A finished copy.
struct Copied {
    std::string name;
    std::string file;
    uint64_t bytes = 0;
    double seconds = 0;
    uint32_t path = 0;
    Record record() const;
};

// The failure for a difference that --verify found.
Failure differs(const Error& error);

// Thrown by a copy that stops because the whole job stops. It is not reported.
struct Stopped {};

// Runs large copies one after the other, since each fills the bus. Small copies run a few at a time, since they wait
// for the daemon and the disk. Each thread has one connection for all its copies.
class Copies {
public:
    // sizes: of each copy. what: the label of the progress line.
    Copies(Context& context, const std::string& what, std::vector<uint64_t> sizes,
           Job::Clearing clearing = Job::Clearing::by_threads);

    // Calls copy(client, index, progress) for each. A Failure ends that copy alone, unless the daemon is gone. Throws
    // Interrupted.
    using Copy = std::function<Copied(const Client&, size_t, const gshm::Progress&)>;
    void run(const Copy& copy);

    // In the order of the sizes; nullopt for a failed copy.
    const std::vector<std::optional<Copied>>& done() const { return done_; }
    int exit_code() const { return job_.exit_code(); }
    double seconds() const { return job_.seconds(); }

private:
    const Client& connect();
    void run_one(const Client& client, size_t index, const Copy& copy);

    Context& context_;
    std::vector<uint64_t> sizes_;
    Job job_;
    std::vector<std::optional<Copied>> done_;
    std::mutex mutex_;
    std::deque<Client> connections_;  // stay open: ephemeral objects end with theirs
};

// Prints the finished copies as JSON: one record for a single copy, else a list.
void print_copies(const Context& context, const std::vector<Copied>& copies, bool single, double seconds);

}  // namespace gshm::cli

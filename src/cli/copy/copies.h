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

// Of GSHM_PATH_...: "direct", "cached", "staged", "hole", "cufile", "threads", "stream"
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

// That --verify has found a difference.
Failure differs(const Error& error);

// Thrown where a copy ends because the whole job does; nobody needs to be told.
struct Stopped {};

// Large ones one after the other, each of which fills the bus; small ones a few at a time, since those wait for the
// daemon and the disk. Each thread has one connection, whatever it copies.
class Copies {
public:
    // sizes: of each copy. what: for the line of progress.
    Copies(Context& context, const std::string& what, std::vector<uint64_t> sizes,
           Job::Clearing clearing = Job::Clearing::by_threads);

    // Calls copy(client, index, progress) for each; what it throws as a Failure is that one's alone unless the daemon is
    // gone. Throws Interrupted.
    using Copy = std::function<Copied(const Client&, size_t, const gshm::Progress&)>;
    void run(const Copy& copy);

    // In the order of the sizes; nothing where a copy has failed.
    const std::vector<std::optional<Copied>>& done() const { return done_; }
    int exit_code() const { return job_.exit_code(); }
    double seconds() const { return job_.seconds(); }

private:
    void run_one(const Client& client, size_t index, const Copy& copy);

    Context& context_;
    std::vector<uint64_t> sizes_;
    Job job_;
    std::vector<std::optional<Copied>> done_;
};

// What was done, as JSON: of one copy that stands for itself its record, else all of them.
void print_copies(const Context& context, const std::vector<Copied>& copies, bool single, double seconds);

}  // namespace gshm::cli

#include "cli/copy/copies.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <numeric>

namespace gshm::cli {
namespace {

constexpr uint64_t kLargeBytes = uint64_t{8} << 20;
constexpr unsigned kThreads = 4;

uint64_t sum_of(const std::vector<uint64_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
}

}  // namespace

std::vector<std::string> path_words(uint32_t path) {
    constexpr std::pair<uint32_t, const char*> kWords[] = {{GSHM_PATH_DIRECT, "direct"}, {GSHM_PATH_CACHED, "cached"},
                                                           {GSHM_PATH_STAGED, "staged"}, {GSHM_PATH_HOLE, "hole"},
                                                           {GSHM_PATH_CUFILE, "cufile"}, {GSHM_PATH_THREADS, "threads"},
                                                           {GSHM_PATH_STREAM, "stream"}};
    std::vector<std::string> words;
    for (const auto& [bit, word] : kWords)
        if (path & bit) words.emplace_back(word);
    return words;
}

Record Copied::record() const {
    Record record;
    record.add("name", name)
        .add("file", file)
        .add("bytes", bytes)
        .add("seconds", seconds)
        .add("path", path_words(path));
    return record;
}

Failure differs(const Error& error) {
    return {EIO, error.message, "if no process wrote to them meanwhile, memory or disk is damaged"};
}

Copies::Copies(Context& context, const std::string& what, std::vector<uint64_t> sizes, Job::Clearing clearing)
    : context_(context),
      sizes_(std::move(sizes)),
      job_(context, what, sum_of(sizes_), clearing),
      done_(sizes_.size()) {}

void Copies::run_one(const Client& client, size_t index, const Copy& copy) {
    uint64_t told = 0;
    const auto progress = [&](uint64_t done_bytes, uint64_t) {
        job_.advance(done_bytes - std::min(told, done_bytes));
        told = std::max(told, done_bytes);
        return !job_.stopping();
    };
    try {
        done_[index] = copy(client, index, progress);
    } catch (const Failure& failure) {
        job_.fail(failure);
    } catch (const Stopped&) {}
}

const Client& Copies::connect() {
    auto client = context_.connect();
    const std::lock_guard lock(mutex_);
    return connections_.emplace_back(std::move(client));
}

void Copies::run(const Copy& copy) {
    if (sizes_.empty()) return;
    const Client& first = context_.client();
    std::vector<size_t> large, small;
    for (size_t i = 0; i < sizes_.size(); ++i) (sizes_[i] >= kLargeBytes ? large : small).push_back(i);
    const auto threads = std::clamp<size_t>(small.size() + (large.empty() ? 0 : 1), 1, small.size() > 1 ? kThreads : 1);
    std::atomic<size_t> next = 0;
    const auto body = [&](unsigned thread) {
        const Client& client = thread == 0 ? first : connect();
        if (thread == 0)
            for (size_t i = 0; i < large.size() && !job_.stopping(); ++i) run_one(client, large[i], copy);
        for (size_t i = next++; i < small.size() && !job_.stopping(); i = next++) run_one(client, small[i], copy);
    };
    // A signal that arrives after the last copy is ignored: the exit status of an interrupted command means that
    // something is missing.
    const auto is_complete = [&] {
        return std::ranges::all_of(done_, [](const auto& copied) { return copied.has_value(); });
    };
    try {
        job_.run(static_cast<unsigned>(threads), body);
    } catch (const Interrupted&) {
        if (!is_complete()) throw;
    }
    if (is_complete()) job_.set_complete();
}

void print_copies(const Context& context, const std::vector<Copied>& copies, bool single, double seconds) {
    if (!context.json()) return;
    if (single) {
        if (!copies.empty()) context.print(copies.front().record());
        return;
    }
    std::vector<Record> records;
    uint64_t bytes = 0;
    for (const auto& copied : copies) {
        records.push_back(copied.record());
        bytes += copied.bytes;
    }
    Record record;
    record.add("files", std::move(records)).add("bytes", bytes).add("seconds", seconds);
    context.print(record);
}

}  // namespace gshm::cli

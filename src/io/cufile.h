// NVIDIA's cuFile: files into GPU memory without a way through the host's, where the machine is made for it. Loaded at
// run time, and used where it has been measured to be faster. Safe from any thread; calls return at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/worker.h"
#include "device/copier.h"
#include "io/file.h"

namespace gshm::io {

class CuFile {
public:
    // The process's; lives as long as it does.
    static CuFile& get();

    // The library is there and has started. Finding out takes long: the first call that wants to know (`find_out`)
    // only begins with it, in a thread of its own.
    bool is_ready(bool find_out) EXCLUDES(mutex_);
    // For tests: until it is known.
    void wait_until_known() EXCLUDES(mutex_);

    struct Job {
        File* file = nullptr;
        Copier* copier = nullptr;  // of the memory
        bool is_write = false;
        uint64_t address = 0;
        uint64_t bytes = 0;
        uint64_t offset = 0;
        // In a thread of ours: how many bytes were moved, or a negative number: then this way is of no use.
        std::move_only_function<void(int64_t)> done;
    };
    // Only if is_ready().
    void submit(Job job) EXCLUDES(mutex_);

    // Which way large transfers take at a place (File::place()). The first who asks is told to measure, all others use
    // staging until he has called measured(), failed() or, if he could not measure, abandoned().
    enum class Way { staging, cufile, measure };
    Way choose(uint64_t place, bool is_write) EXCLUDES(mutex_);
    void measured(uint64_t place, bool is_write, uint64_t staged_ns, uint64_t cufile_ns) EXCLUDES(mutex_);
    void failed(uint64_t place, bool is_write) EXCLUDES(mutex_);
    void abandoned(uint64_t place, bool is_write) EXCLUDES(mutex_);

private:
    struct Library;
    enum class State { unknown, loading, absent, ready };

    CuFile() = default;
    void load() EXCLUDES(mutex_);
    void run(Job& job);
    int64_t perform(const Job& job);

    Mutex mutex_;
    std::condition_variable known_;
    State state_ GUARDED_BY(mutex_) = State::unknown;
    std::map<std::pair<uint64_t, bool>, Way> ways_ GUARDED_BY(mutex_);  // measure: somebody does
    const Library* library_ = nullptr;  // set before the state is ready, as is
    std::optional<Worker> workers_;
};

}  // namespace gshm::io

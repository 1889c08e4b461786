// NVIDIA's cuFile: transfers between files and GPU memory without host memory, on suitable machines. Loaded at run
// time, and used where it was measured to be faster. Safe from any thread; calls do not block.
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

namespace gshm::core::io {

class CuFile {
public:
    // The instance of this process, never destroyed.
    static CuFile& get();

    // The library is present and started. Finding out takes long: the first call with `find_out` only starts a thread
    // for it.
    bool is_ready(bool find_out) EXCLUDES(mutex_);
    // For tests: waits until it is known.
    void wait_until_known() EXCLUDES(mutex_);

    struct Job {
        File* file = nullptr;
        Copier* copier = nullptr;  // of the memory
        bool is_write = false;
        uint64_t address = 0;
        uint64_t bytes = 0;
        uint64_t offset = 0;
        // Called in a cuFile thread with the number of bytes moved; a negative number means that this way does not
        // work.
        std::move_only_function<void(int64_t)> done;
    };
    // Only after is_ready().
    void submit(Job job) EXCLUDES(mutex_);

    // The way of large transfers at a place (File::place()). The first caller is told to measure. All others use
    // staging until it calls measured(), failed() or, if it could not measure, abandoned().
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
    std::map<std::pair<uint64_t, bool>, Way> ways_ GUARDED_BY(mutex_);  // measure: in progress
    const Library* library_ = nullptr;  // set before the state becomes ready, as are the workers
    std::optional<Worker> workers_;
};

}  // namespace gshm::core::io

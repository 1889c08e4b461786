// A thread that moves the rows of the catalog's journal to its file, a few milliseconds after they are committed, so
// that one transaction has many rows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"

namespace gshm::core {

class CatalogWriter {
public:
    // `drain` is called in the thread. After an error it is called again after a delay.
    explicit CatalogWriter(std::function<Status()> drain);
    // Ends the thread. Remaining rows stay in the journal.
    ~CatalogWriter();
    CatalogWriter(const CatalogWriter&) = delete;
    CatalogWriter& operator=(const CatalogWriter&) = delete;

    // From any thread, after rows were added to the journal.
    void wake() EXCLUDES(mutex_);

private:
    void run() EXCLUDES(mutex_);
    // False: the thread must end.
    bool sleep_until_woken() EXCLUDES(mutex_);
    bool sleep(std::chrono::milliseconds time) EXCLUDES(mutex_);

    const std::function<Status()> drain_;
    std::atomic<bool> awake_ = false;  // a wake-up is a system call: one for each transaction is enough
    Mutex mutex_;
    std::condition_variable changed_;
    bool ending_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace gshm::core

// Notices to the kernel that cached entries and attributes are invalid. A process of its own sends them: INVAL_ENTRY
// blocks uninterruptibly on the directory lock, which a caller waiting for our reply may hold. A gshmd that is killed
// meanwhile would not end, and the next one, which will answer those calls, could not begin.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/worker.h"

namespace gshm::core::fuse {

// Safe from any thread.
class Notices {
public:
    // `mount` is the descriptor of the mount, which must stay open.
    explicit Notices(int mount);
    ~Notices();

    // Queues a message in the kernel's format, with its header.
    void tell(std::string message);
    // The same for several messages. on_told is called in another thread, with the result of each: 0 or an error
    // number.
    void ask(std::vector<std::string> messages, std::function<void(const std::vector<int>& errors)> on_told);
    // Returns when all notices are sent. Later ones are dropped.
    void finish() EXCLUDES(mutex_);

    // The main function of the other process, which gshmd starts: descriptor 3 is the mount's, 4 a socket to gshmd.
    // Returns the exit status when gshmd has ended.
    static constexpr const char* kOption = "--notices";
    static int serve();

private:
    struct Asked {
        std::vector<int> errors;
        size_t left = 0;
        std::function<void(const std::vector<int>&)> on_told;
    };
    struct Item {
        std::string message;
        std::shared_ptr<Asked> asked;  // null: the result is not needed
        size_t index = 0;
    };
    void add(Item item) EXCLUDES(mutex_);
    void drain() EXCLUDES(mutex_);
    std::vector<Item> take() EXCLUDES(mutex_);
    std::vector<int> tell_all(const std::vector<Item>& items);
    // Starts the process if there is none. False: it cannot be started.
    bool start();
    void end();
    // False: the process has ended, or does not answer after finish() was called.
    bool tell_through(const std::vector<Item>& items, std::vector<int>* ret_errors) EXCLUDES(mutex_);
    bool is_finished() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return finished_;
    }

    const int mount_;
    // Used only by the worker.
    UniqueFd socket_;
    pid_t process_ = 0;

    Mutex mutex_;
    std::deque<Item> queue_ GUARDED_BY(mutex_);
    bool draining_ GUARDED_BY(mutex_) = false;
    bool finished_ GUARDED_BY(mutex_) = false;
    Worker worker_;  // last: its thread uses the other members
};

}  // namespace gshm::core::fuse

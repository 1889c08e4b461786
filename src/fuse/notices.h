// What the kernel is told besides answers: that what it remembers is no longer so. It is told by a process of its own. The
// kernel waits there, where not even SIGKILL reaches it, for locks that are held by calls which wait for us: a gshmd that
// is killed meanwhile would not end, and the next one, which will answer those calls, could not begin.
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
    // The mount's descriptor, which must stay open.
    explicit Notices(int mount);
    ~Notices();

    // A message as the kernel reads it, with its header.
    void tell(std::string message);
    // Then says, in another thread, what came of each: 0 or an error number.
    void ask(std::vector<std::string> messages, std::function<void(const std::vector<int>& errors)> on_told);
    // Returns when all of it was told; what comes after that is not.
    void finish() EXCLUDES(mutex_);

    // The other process, which gshmd starts: descriptor 3 is the mount's, 4 a socket to gshmd. Returns the exit status,
    // when gshmd has gone.
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
        std::shared_ptr<Asked> asked;  // null: nobody wants to know
        size_t index = 0;
    };
    void add(Item item) EXCLUDES(mutex_);
    void drain() EXCLUDES(mutex_);
    std::vector<Item> take() EXCLUDES(mutex_);
    std::vector<int> tell_all(const std::vector<Item>& items);
    // The process, if there is none. False: it cannot be had.
    bool start();
    void end();
    // False: the process has gone, or does not answer and we are to end.
    bool tell_through(const std::vector<Item>& items, std::vector<int>* ret_errors) EXCLUDES(mutex_);
    bool is_finished() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        return finished_;
    }

    const int mount_;
    // The worker's own.
    UniqueFd socket_;
    pid_t process_ = 0;

    Mutex mutex_;
    std::deque<Item> queue_ GUARDED_BY(mutex_);
    bool draining_ GUARDED_BY(mutex_) = false;
    bool finished_ GUARDED_BY(mutex_) = false;
    Worker worker_;  // last: its thread uses the rest
};

}  // namespace gshm::core::fuse

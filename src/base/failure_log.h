// Failed requests in the log, with their caller. Errors that programs provoke on purpose (a name that does not exist) are
// debug messages. All others are info messages, whose number is bounded for each user: a program that fails in a loop
// does not fill the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>
#include <sys/types.h>

#include "base/log.h"
#include "base/mutex.h"

namespace gshm::core {

struct FailedRequest {
    pid_t pid = 0;
    uid_t uid = 0;
    std::string_view operation;
    std::string_view name;  // may be empty
};

// message: empty for the text of the code. Control characters are replaced: a name must not end a line of the log.
void log_failure(const FailedRequest& request, int code, std::string_view message);

// A message at that level that a user has caused. Counts as one of the user's lines.
void log_for_user(LogLevel level, uid_t uid, std::string_view message);

// True for errors that are only debug messages.
bool is_expected_failure(int code);

// The lines that each user may write: kBurst at once, then one a second. For any thread.
class LineBudget {
public:
    using Time = std::chrono::steady_clock::time_point;
    static constexpr uint64_t kBurst = 20;
    static constexpr size_t kUsers = 64;  // further users share one budget

    // False: no line now. Otherwise *ret_dropped is the number of lines refused to the user since the last one.
    bool take(uid_t uid, Time now, uint64_t* ret_dropped) EXCLUDES(mutex_);

private:
    struct User {
        uint64_t left = kBurst;
        uint64_t dropped = 0;
        Time since;  // of `left`
    };
    User& user(uid_t uid, Time now) REQUIRES(mutex_);

    Mutex mutex_;
    std::map<uid_t, User> users_ GUARDED_BY(mutex_);
    User others_ GUARDED_BY(mutex_);
};

}  // namespace gshm::core

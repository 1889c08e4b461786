#include "base/failure_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.h"

namespace gshm::core {
namespace {

std::string without_control_characters(std::string_view text) {
    std::string clean(text);
    std::ranges::replace_if(clean, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, '?');
    return clean;
}

void write_line(LogLevel level, std::string text, uint64_t dropped) {
    if (dropped > 0) text += fmt::format(" ({} failures of this user before it are not shown)", dropped);
    log_message(level, without_control_characters(text));
}

LineBudget& budget() {
    // Leaked on purpose, as the logger is.
    static auto* instance = new LineBudget;
    return *instance;
}

}  // namespace

bool is_expected_failure(int code) {
    switch (code) {
        case ENOENT:
        case EEXIST:
        case ENOTDIR:
        case EISDIR:
        case ENOTEMPTY:
        case ENODATA:
        case ERANGE:  // the size of an attribute is asked for this way
        case ENXIO:   // no data after an offset
        case ENOSYS:
        case EOPNOTSUPP:
        case EAGAIN:
        case EINTR:
        case ESTALE:
        case ETIMEDOUT:
        case ECANCELED: return true;
        default: return false;
    }
}

void log_failure(const FailedRequest& request, int code, std::string_view message) {
    const bool expected = is_expected_failure(code);
    const auto level = expected ? LogLevel::debug : LogLevel::info;
    if (!log_enabled(level)) return;
    uint64_t dropped = 0;
    if (!expected && !budget().take(request.uid, std::chrono::steady_clock::now(), &dropped)) return;
    std::string text = fmt::format("pid {} uid {}: {}", request.pid, request.uid, request.operation);
    if (!request.name.empty()) text += fmt::format(" \"{}\"", request.name);
    text += fmt::format(" failed: {}", message.empty() ? std::string_view(strerror(code)) : message);
    write_line(level, std::move(text), dropped);
}

void log_for_user(LogLevel level, uid_t uid, std::string_view message) {
    uint64_t dropped = 0;
    if (!log_enabled(level) || !budget().take(uid, std::chrono::steady_clock::now(), &dropped)) return;
    write_line(level, std::string(message), dropped);
}

LineBudget::User& LineBudget::user(uid_t uid, Time now) {
    if (auto found = users_.find(uid); found != users_.end()) return found->second;
    // A user whose budget is whole again need not be remembered.
    if (users_.size() >= kUsers) {
        std::erase_if(users_, [&](const auto& entry) {
            return entry.second.dropped == 0 && now - entry.second.since >= std::chrono::seconds(kBurst);
        });
    }
    if (users_.size() >= kUsers) return others_;
    return users_.emplace(uid, User{kBurst, 0, now}).first->second;
}

bool LineBudget::take(uid_t uid, Time now, uint64_t* ret_dropped) {
    MutexLock lock(mutex_);
    User& user = this->user(uid, now);
    const auto passed = std::chrono::duration_cast<std::chrono::seconds>(now - user.since);
    if (passed.count() > 0) {
        user.left = std::min<uint64_t>(kBurst, user.left + static_cast<uint64_t>(passed.count()));
        user.since += passed;
    }
    if (user.left == 0) {
        ++user.dropped;
        return false;
    }
    --user.left;
    *ret_dropped = std::exchange(user.dropped, 0);
    return true;
}

}  // namespace gshm::core

#include "status.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

namespace vineyard {

std::string Status::CodeAsString() const {
    switch (code()) {
        case StatusCode::kOK: return "OK";
        case StatusCode::kInvalid: return "Invalid";
        case StatusCode::kKeyError: return "Key error";
        case StatusCode::kTypeError: return "Type error";
        case StatusCode::kIOError: return "IO error";
        case StatusCode::kEndOfFile: return "End of file";
        case StatusCode::kNotImplemented: return "Not implemented";
        case StatusCode::kAssertionFailed: return "Assertion failed";
        case StatusCode::kObjectExists: return "Object exists";
        case StatusCode::kObjectNotExists: return "Object not exists";
        case StatusCode::kObjectSealed: return "Object sealed";
        case StatusCode::kObjectNotSealed: return "Object not sealed";
        case StatusCode::kVineyardServerNotReady: return "Vineyard server not ready";
        case StatusCode::kConnectionFailed: return "Connection failed";
        case StatusCode::kConnectionError: return "Connection error";
        case StatusCode::kNotEnoughMemory: return "Not enough memory";
        case StatusCode::kUserInputError: return "User input error";
        case StatusCode::kUnknownError: break;
    }
    return "Unknown error";
}

std::string Status::ToString() const {
    return message().empty() ? CodeAsString() : CodeAsString() + ": " + message();
}

namespace detail {

Status to_status(const gshm::Error& error, StatusCode busy) {
    switch (error.code) {
        case ENOENT: return Status::ObjectNotExists(error.message);
        case EEXIST: return Status::ObjectExists(error.message);
        case EBUSY: return {busy, error.message};
        case ENOMEM:
        case ENOSPC:
        case EDQUOT: return Status::NotEnoughMemory(error.message);
        case EIO: return Status::IOError(error.message);
        case EOPNOTSUPP: return Status::NotImplemented(error.message);
        case EINVAL:
        case EACCES:
        case EPERM:
        case EILSEQ:
        case EISDIR:
        case ENOTDIR:
        case ENODEV:
        case ENAMETOOLONG: return Status::Invalid(error.message);
        case ECHILD:
        case ECONNREFUSED:
        case ECONNRESET:
        case EPIPE:
        case EPROTO:
        case ESTALE:
        case ETIMEDOUT: return Status::ConnectionError(error.message);
        default: return Status::UnknownError(error.message);
    }
}

Status to_status(const std::vector<std::pair<ObjectID, Status>>& failed, size_t tried, const char* what) {
    if (failed.empty()) return Status::OK();
    std::string text = std::to_string(failed.size()) + " of " + std::to_string(tried) + " " + what + ": ";
    for (const auto& [id, status] : failed) {
        if (&id != &failed.front().first) text += "; ";
        text += ObjectIDToString(id) + " (" + status.ToString() + ")";
    }
    return {failed.front().second.code(), text};
}

void log_line(const char* level, const std::string& text) {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char when[32];
    std::strftime(when, sizeof when, "%F %T", &local);
    std::string line = std::string(when) + " vineyard " + level + ": " + text;
    if (line.back() != '\n') line += '\n';
    // One write, so that lines of several threads and processes do not mix.
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

LogLine::LogLine(Severity severity, const char* file, int line) : severity_(severity) {
    text_ << file << ':' << line << ": ";
}

LogLine::~LogLine() {
    static constexpr const char* kLevels[] = {"info", "warning", "error"};
    log_line(kLevels[static_cast<int>(severity_)], text_.str());
}

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
    text_ << file << ':' << line << ": ";
    if (*condition != '\0') text_ << "Check failed: " << condition << ' ';
}

CheckFailure::~CheckFailure() {
    log_line("fatal", text_.str());
    std::abort();
}

}  // namespace detail
}  // namespace vineyard

#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/fd.h"
#include "base/mutex.h"

namespace gshm::core {
namespace {

std::shared_ptr<spdlog::logger>& logger() {
    // Leaked on purpose: threads may log during process exit.
    static auto* instance = [] {
        auto* made = new std::shared_ptr<spdlog::logger>(
            std::make_shared<spdlog::logger>("gshmd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()));
        (*made)->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
        (*made)->flush_on(spdlog::level::info);
        return made;
    }();
    return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: break;
    }
    return spdlog::level::err;
}

struct Receiver {
    Mutex mutex;
    LogFunction function GUARDED_BY(mutex);
};

Receiver& receiver() {
    static auto* instance = new Receiver;
    return *instance;
}

}  // namespace

void log_set_level(LogLevel level) {
    logger()->set_level(to_spdlog(level));
}

bool log_enabled(LogLevel level) {
    return logger()->should_log(to_spdlog(level));
}

bool log_to_file(const std::string& path) {
    auto file = UniqueFd::adopt(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat status = {};
    if (!file || fstat(file.get(), &status) != 0) return false;
    // Messages may name objects of any user. A device, such as /dev/null, belongs to others too.
    if (S_ISREG(status.st_mode) && fchmod(file.get(), 0600) != 0) return false;
    try {
        auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
        sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
        logger()->sinks() = {std::move(sink)};
        return true;
    } catch (const spdlog::spdlog_ex&) {
        return false;
    }
}

void log_to_function(LogFunction function) {
    MutexLock lock(receiver().mutex);
    receiver().function = std::move(function);
}

void log_message(LogLevel level, std::string_view message) {
    {
        MutexLock lock(receiver().mutex);
        if (receiver().function) return receiver().function(level, std::string(message).c_str());
    }
    logger()->log(to_spdlog(level), message);
}

}  // namespace gshm::core

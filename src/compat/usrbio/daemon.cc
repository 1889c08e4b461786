#include "daemon.h"

#include <map>
#include <mutex>
#include <pthread.h>
#include <sys/stat.h>

namespace gshm::usrbio {
namespace {

struct Connections {
    std::mutex mutex;  // held across fork(), so that the child finds a consistent map
    std::map<std::string, std::weak_ptr<Daemon>> by_dir;
};

Connections& connections() {
    static auto* made = [] {
        auto* all = new Connections;  // never destroyed: threads may use it during exit
        pthread_atfork([] { connections().mutex.lock(); }, [] { connections().mutex.unlock(); },
                       [] {
                           // A child must not use its parent's connections.
                           connections().by_dir.clear();
                           connections().mutex.unlock();
                       });
        return all;
    }();
    return *made;
}

// A gshmd that ends each time is not started without end.
constexpr int kAttempts = 32;

bool is_runtime_folder(const std::string& path) {
    struct stat status = {};
    return stat((path + "/" GSHM_SOCKET_NAME).c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

}  // namespace

Result<std::shared_ptr<Daemon>> Daemon::find(const char* mount_point) {
    TRY(check_argument(mount_point != nullptr && *mount_point != '\0', "the mount point is NULL or empty"));
    std::string dir = mount_point;
    if (!is_runtime_folder(dir)) {
        auto found = find_daemon(dir);
        if (!found) {
            return Error{found.error().code,
                         fmt::format("{} is neither in a gshm mount nor the runtime folder of a gshmd: {}", mount_point,
                                     found.error().message)};
        }
        dir = *found;
    }
    Connections& all = connections();
    std::lock_guard lock(all.mutex);
    std::weak_ptr<Daemon>& known = all.by_dir[dir];
    if (auto daemon = known.lock()) return daemon;
    auto client = TRY(Client::connect({.dir = dir}));
    const uint64_t instance = TRY(client.daemon()).instance;
    // A folder may have several paths; memory and rings must use one connection.
    for (const auto& [path, other] : all.by_dir) {
        auto daemon = other.lock();
        if (!daemon || daemon->instance() != instance) continue;
        known = daemon;
        return daemon;
    }
    std::shared_ptr<Daemon> daemon(new Daemon(std::move(client), instance));
    known = daemon;
    log_info("connected to the gshmd at {}", dir);
    return daemon;
}

Result<Object> Daemon::create(const std::string& name, const std::function<Result<Object>()>& make) const {
    for (int attempt = 1;; ++attempt) {
        auto made = make();
        if (made || made.error().code != ECONNRESET || attempt == kAttempts) return made;
        log_info("gshmd has ended while it made {}; making it again", name);
        auto removed = client_.unlink(name);
        for (int again = 1; !removed && removed.error().code == ECONNRESET && again < kAttempts; ++again) {
            removed = client_.unlink(name);
        }
        if (!removed && removed.error().code != ENOENT) return std::move(removed).error();
    }
}

}  // namespace gshm::usrbio

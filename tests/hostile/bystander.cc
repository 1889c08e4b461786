#include "hostile/bystander.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gshm/gshm.h>

namespace gshm::core::hostile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPingInterval(1);
constexpr size_t kBytes = 20'000;

// One connection and one call of each kind.
class Round {
public:
    Round(const BystanderTask& task, uint64_t number)
        : task_(task),
          seen_(*task.seen),
          number_(std::to_string(number)),
          text_(kBytes, static_cast<char>('a' + number % 26)) {}
    ~Round() {
        gshm_watch_destroy(watch_);
        gshm_close(object_);
        gshm_disconnect(client_);
    }

    void run() {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        options.dir = task_.dir.c_str();
        options.timeout_ms = task_.connect_timeout_ms;
        if (!call("connect", [&] { return gshm_connect(&options, &client_); })) return;
        call("ping", [&] { return gshm_ping(client_); });
        use_again();
        use_object("by/" + number_);
        use_object("shared/" + number_ + "-" + std::to_string(random_()));
        if (!task_.mount.empty()) use_file();
    }

private:
    bool call(const char* name, const std::function<int()>& body) {
        snprintf(seen_.call, sizeof seen_.call, "%s", name);
        const auto begin = Clock::now();
        const int code = body();
        const auto ns = static_cast<uint64_t>((Clock::now() - begin).count());
        seen_.call[0] = '\0';
        if (ns > seen_.slowest_ns) {
            seen_.slowest_ns = ns;
            snprintf(seen_.slowest, sizeof seen_.slowest, "%s", name);
        }
        ++seen_.calls;
        if (code >= 0) return true;
        if (seen_.failed++ == 0) {
            snprintf(seen_.failure, sizeof seen_.failure, "%s: %s (%s)", name, strerror(-code), gshm_last_error());
        }
        return false;
    }
    static int or_errno(bool success) { return success ? 0 : -errno; }

    bool create(const std::string& name, uint64_t bytes) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name.c_str();
        spec.size_bytes = bytes;
        return call("create", [&] { return gshm_create(client_, &spec, &object_); });
    }
    void close() { gshm_close(std::exchange(object_, nullptr)); }

    // A name that others know.
    void use_again() {
        if (!create("by/again", 100)) return;
        close();
        // It goes with its last handle, or is unlinked here.
        gshm_unlink(client_, "by/again");
    }

    void use_object(const std::string& name) {
        const std::string prefix = name.substr(0, name.find('/') + 1);
        const bool watched = call("watch", [&] { return gshm_watch_create(client_, name.c_str(), 0, &watch_); });
        if (!create(name, kBytes)) return;
        if (watched) {
            gshm_event event = GSHM_EVENT_INIT;
            call("event", [&] { return gshm_watch_next(watch_, &event, -1); });
        }
        gshm_watch_destroy(std::exchange(watch_, nullptr));
        call("write", [&] { return gshm_copy_in(object_, 0, text_.data(), text_.size()); });
        transfer();
        gshm_fence* fence = nullptr;
        call("fence", [&] { return gshm_fence_open(object_, GSHM_FENCE_WRITE, &fence); });
        gshm_fence_close(fence);
        call("attribute", [&] { return gshm_set_attribute(client_, name.c_str(), "a", "value", 5); });
        const bool sealed = call("seal", [&] { return gshm_seal(object_); });
        close();
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        if (!sealed) return;
        call("wait", [&] { return gshm_wait(client_, name.c_str(), GSHM_WAIT_SEALED, -1, &info); });
        call("wait", [&] {  // registers a wait
            const int code = gshm_wait(client_, (prefix + "missing").c_str(), GSHM_WAIT_EXISTS, 0, &info);
            return code == -ETIMEDOUT ? 0 : code;
        });
        if (call("open", [&] { return gshm_open(client_, name.c_str(), 0, &object_); })) {
            std::string read(text_.size(), '\0');
            call("read", [&] {
                const int code = gshm_copy_out(object_, 0, read.data(), read.size());
                return code == 0 && read != text_ ? -EBADMSG : code;
            });
        }
        close();
        gshm_listing* listing = nullptr;
        call("list", [&] { return gshm_list(client_, prefix.substr(0, prefix.size() - 1).c_str(), 0, &listing); });
        gshm_listing_free(listing);
        call("unlink", [&] { return gshm_unlink(client_, name.c_str()); });
    }

    // Of a file into the object, by gshmd.
    void transfer() {
        const std::string path = task_.scratch + "/file";
        const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (write(file, text_.data(), text_.size()) == static_cast<ssize_t>(text_.size())) {
            call("transfer", [&] { return gshm_read_file(object_, 0, file, 0, text_.size(), nullptr, nullptr); });
        }
        ::close(file);
    }

    void use_file() {
        const std::string path = task_.mount + "/by/file" + number_;
        int file = -1;
        if (!call("mount: create", [&] {
                file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
                return or_errno(file >= 0);
            })) {
            return;
        }
        const auto bytes = static_cast<ssize_t>(text_.size());
        call("mount: write", [&] { return or_errno(pwrite(file, text_.data(), text_.size(), 0) == bytes); });
        std::string read(text_.size(), '\0');
        call("mount: read", [&] {
            if (pread(file, read.data(), read.size(), 0) != bytes) return -errno;
            return read == text_ ? 0 : -EBADMSG;
        });
        ::close(file);
        call("mount: unlink", [&] { return or_errno(unlink(path.c_str()) == 0); });
    }

    const BystanderTask& task_;
    Observations& seen_;
    const std::string number_;
    const std::string text_;
    std::random_device random_;
    gshm_client* client_ = nullptr;
    gshm_object* object_ = nullptr;
    gshm_watch* watch_ = nullptr;
};

// A stall delays the pings that were due meanwhile: they count too.
void record(Observations& seen, std::chrono::nanoseconds duration) {
    for (auto ns = duration; ns.count() > 0; ns -= kPingInterval) {
        const auto bounded = static_cast<uint32_t>(std::min<int64_t>(ns.count(), UINT32_MAX));
        const uint64_t at = seen.samples++;
        if (at < Observations::kSamples) seen.ping_ns[at] = bounded;
        if (ns <= kPingInterval) break;
    }
}

}  // namespace

void run_pings(const BystanderTask& task) {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = task.dir.c_str();
    options.timeout_ms = task.connect_timeout_ms;
    gshm_client* client = nullptr;
    if (const int code = gshm_connect(&options, &client); code != 0) {
        if (task.seen->failed++ == 0)
            snprintf(task.seen->failure, sizeof task.seen->failure, "connect: %s", gshm_last_error());
        return;
    }
    while (!task.seen->stop) {
        const auto begin = Clock::now();
        const int code = gshm_ping(client);
        record(*task.seen, Clock::now() - begin);
        ++task.seen->pings;
        if (code != 0 && task.seen->failed++ == 0) {
            snprintf(task.seen->failure, sizeof task.seen->failure, "ping: %s", gshm_last_error());
        }
        std::this_thread::sleep_until(begin + kPingInterval);
    }
    gshm_disconnect(client);
}

void run_rounds(const BystanderTask& task) {
    for (uint64_t number = 0; !task.seen->stop; ++number) {
        Round(task, number).run();
        ++task.seen->rounds;
        usleep(2000);
    }
}

double ping_p99_ms(const Observations& seen) {
    std::vector<uint32_t> sorted(seen.ping_ns.begin(),
                                 seen.ping_ns.begin() +
                                     static_cast<long>(std::min<uint64_t>(seen.samples, Observations::kSamples)));
    if (sorted.empty()) return 0;
    const auto at = sorted.begin() + static_cast<long>(sorted.size() * 99 / 100);
    std::nth_element(sorted.begin(), at, sorted.end());
    return *at / 1e6;
}

}  // namespace gshm::core::hostile

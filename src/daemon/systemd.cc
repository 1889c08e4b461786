// systemd as the keeper: its notify socket and its store of descriptors, used directly as described in sd_notify(3).
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/log.h"
#include "daemon/keeper.h"

namespace gshm::core {
namespace {

Status notify(const std::string& text, int descriptor = -1) {
    const char* path = getenv("NOTIFY_SOCKET");
    if (path == nullptr || (path[0] != '/' && path[0] != '@')) return fail(EINVAL, "NOTIFY_SOCKET is not set");
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) return fail(EINVAL, "NOTIFY_SOCKET is too long");
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = '\0';
    auto socket = UniqueFd::adopt(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return fail_errno("socket");
    iovec part{const_cast<char*>(text.data()), text.size()};
    Descriptors<1> space;
    msghdr message = {};
    message.msg_name = &address;
    message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) space.attach(message, {&descriptor, 1});
    ssize_t sent = -1;
    while ((sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
    if (sent < 0) return fail_errno("cannot notify systemd");
    return {};
}

// Descriptors are named gshm-INSTANCE-KEY, in hex.
std::string name_of(uint64_t instance, uint64_t key) {
    return fmt::format("gshm-{:x}-{:x}", instance, key);
}

bool parse_name(std::string_view name, uint64_t* ret_instance, uint64_t* ret_key) {
    if (!name.starts_with("gshm-")) return false;
    name.remove_prefix(5);
    size_t dash = name.find('-');
    if (dash == std::string_view::npos) return false;
    auto read = [](std::string_view text, uint64_t* ret_value) {
        auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *ret_value, 16);
        return error == std::errc() && end == text.data() + text.size();
    };
    return read(name.substr(0, dash), ret_instance) && read(name.substr(dash + 1), ret_key);
}

class SystemdKeeper final : public Keeper {
public:
    void put(uint64_t key, int fd) override REQUIRES(store_lock) {
        // Without FDPOLL=0 systemd drops descriptors that poll as hung up, which some valid ones do.
        auto sent = notify(fmt::format("FDSTORE=1\nFDPOLL=0\nFDNAME={}", name_of(instance_, key)), fd);
        if (!sent) return log_error("{}; what is here may not outlive gshmd", sent.error().message);
        keys_.insert_or_assign(key, true);
    }
    void drop(std::span<const uint64_t> keys) override REQUIRES(store_lock) {
        for (uint64_t key : keys) {
            if (keys_.erase(key) == 0) continue;
            if (auto sent = notify("FDSTOREREMOVE=1\nFDNAME=" + name_of(instance_, key)); !sent) {
                log_error("{}", sent.error().message);
            }
        }
    }
    void begin(uint64_t instance) override REQUIRES(store_lock) {
        stop();
        instance_ = instance;
    }
    void resume(uint64_t instance) override REQUIRES(store_lock) { instance_ = instance; }
    void stop() override REQUIRES(store_lock) {
        std::vector<uint64_t> all;
        for (const auto& [key, kept] : keys_) all.push_back(key);
        drop(all);
    }
    void sync() override EXCLUDES(store_lock) {
        // systemd closes its end of the pipe after it has processed all earlier messages.
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return;
        auto reader = UniqueFd::adopt(ends[0]);
        auto writer = UniqueFd::adopt(ends[1]);
        if (!notify("BARRIER=1", writer.get())) return;
        writer.reset();
        pollfd closed{reader.get(), 0, 0};
        poll(&closed, 1, 5000);
    }
    void take_over(const Kept& kept) {
        instance_ = kept.instance;
        for (const auto& [key, fd] : kept.descriptors) keys_[key] = true;
    }

private:
    uint64_t instance_ = 0;
    std::unordered_map<uint64_t, bool> keys_;
};

Keeper::Kept take_listened() {
    Keeper::Kept kept;
    const char* pid = getenv("LISTEN_PID");
    const char* count = getenv("LISTEN_FDS");
    const char* names = getenv("LISTEN_FDNAMES");
    if (pid == nullptr || count == nullptr || names == nullptr || atoi(pid) != getpid()) return kept;
    std::string_view rest = names;
    for (int i = 0; i < atoi(count); ++i) {
        size_t colon = rest.find(':');
        std::string_view name = rest.substr(0, colon);
        rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
        auto fd = UniqueFd::adopt(3 + i);
        fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
        uint64_t instance = 0;
        uint64_t key = 0;
        if (!parse_name(name, &instance, &key)) continue;
        kept.instance = instance;
        kept.descriptors.insert_or_assign(key, std::move(fd));
    }
    return kept;
}

}  // namespace

Result<std::unique_ptr<Keeper>> use_systemd_as_keeper(Keeper::Kept* ret_kept) {
    if (getenv("NOTIFY_SOCKET") == nullptr) {
        return fail(EINVAL, "--keeper systemd: gshmd was not started by systemd as a service of Type=notify");
    }
    auto keeper = std::make_unique<SystemdKeeper>();
    *ret_kept = take_listened();
    keeper->take_over(*ret_kept);
    return keeper;
}

void tell_systemd(const std::string& state) {
    if (getenv("NOTIFY_SOCKET") == nullptr) return;
    if (auto sent = notify(state); !sent) log_warning("{}", sent.error().message);
}

}  // namespace gshm::core

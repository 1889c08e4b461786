// gshm-keeper: holds gshmd's descriptors while no gshmd runs. It does not interpret them, has no threads, calls no
// driver and serves its own user only. It ends when it is told to, or when it cannot be reached any more: its socket is
// gone from the runtime folder and no gshmd is connected. gshmd starts it with a listening socket as descriptor 3.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#include "base/descriptors.h"
#include "keeper/message.h"

namespace {

using gshm::core::keeper::Kind;
using gshm::core::keeper::Message;

constexpr int kListener = 3;

// The path of the listening socket. The folder is held open, so that a replacement at the same path is not mistaken for
// it.
class SocketName {
public:
    SocketName() {
        sockaddr_un address = {};
        socklen_t length = sizeof address;
        if (getsockname(kListener, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
        path_ = address.sun_path;
        const size_t slash = path_.rfind('/');
        if (slash == std::string::npos) return;
        name_ = path_.substr(slash + 1);
        folder_ = open(path_.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
        changes_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        // Watches first and checks afterwards, so that no change is missed.
        constexpr uint32_t kGoing = IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_CREATE | IN_MOVED_TO;
        const bool watched = inotify_add_watch(changes_, path_.substr(0, slash).c_str(), kGoing | IN_ONLYDIR) >= 0;
        watched_ = watched && folder_ >= 0 && fstatat(folder_, name_.c_str(), &socket_, AT_SYMLINK_NOFOLLOW) == 0;
    }
    // Readable when the folder has changed; -1: no watch.
    int changes() const { return changes_; }
    void read_changes() const {
        alignas(inotify_event) char events[4096];
        while (read(changes_, events, sizeof events) > 0) {}
    }
    // False also if it is unknown.
    bool has_gone() const {
        if (!watched_) return false;
        struct stat now = {};
        if (fstatat(folder_, name_.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
        return now.st_ino != socket_.st_ino || now.st_dev != socket_.st_dev;
    }
    const std::string& path() const { return path_; }

private:
    std::string path_;
    std::string name_;
    int folder_ = -1;
    int changes_ = -1;
    bool watched_ = false;
    struct stat socket_ = {};
};

class Keeper {
public:
    void run() {
        while (!stopped_) {
            // Checked after every event: a peer or the path may be gone.
            if (peers_.empty() && name_.has_gone() && !is_readable(kListener)) return say_unreachable();
            std::vector<pollfd> wanted{{kListener, POLLIN, 0}, {name_.changes(), POLLIN, 0}};
            for (int peer : peers_) wanted.push_back({peer, POLLIN, 0});
            if (poll(wanted.data(), wanted.size(), -1) < 0) continue;  // EINTR
            if (wanted[0].revents != 0) accept_one();
            if (wanted[1].revents != 0) name_.read_changes();
            for (size_t i = 2; i < wanted.size(); ++i) {
                if (wanted[i].revents != 0 && !read_one(wanted[i].fd)) drop_peer(wanted[i].fd);
            }
        }
    }

private:
    // The log was in the folder, so this goes to syslog.
    void say_unreachable() const {
        openlog("gshm-keeper", LOG_PID, LOG_DAEMON);
        syslog(LOG_WARNING,
               "%s has gone and no gshmd is connected: no process can reach its %zu descriptors, which are now "
               "closed",
               name_.path().c_str(), kept_.size());
    }

    void accept_one() {
        int peer = accept4(kListener, nullptr, nullptr, SOCK_CLOEXEC);
        if (peer < 0) {
            usleep(10'000);  // probably out of descriptors: avoids a busy loop
            return;
        }
        ucred who = {};
        socklen_t length = sizeof who;
        bool known = getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0;
        if (known && who.uid == geteuid()) peers_.push_back(peer);
        else close(peer);
    }

    void drop_peer(int peer) {
        std::erase(peers_, peer);
        close(peer);
    }

    // Returns false if the peer is gone or not permitted. hear_others() may already have read its messages.
    bool read_one(int peer) {
        Message message = {};
        std::vector<int> descriptors;
        if (!receive(peer, &message, &descriptors)) return errno == EAGAIN;
        size_t taken = 0;
        switch (message.kind) {
            case Kind::put:
                for (; taken < descriptors.size() && taken < message.count; ++taken) {
                    put(message.keys[taken], descriptors[taken]);
                }
                break;
            case Kind::drop:
                for (uint32_t i = 0; i < message.count; ++i) drop(message.keys[i]);
                break;
            case Kind::begin:
                while (!kept_.empty()) drop(kept_.begin()->first);
                instance_ = message.keys[0];
                break;
            case Kind::list: hear_others(peer); return list(peer);
            case Kind::sync: hear_others(peer); return end(peer);
            case Kind::stop: stopped_ = true; break;
            case Kind::end: break;
        }
        for (; taken < descriptors.size(); ++taken) close(descriptors[taken]);
        return true;
    }

    // Other peers may have unread messages: a killed daemon may have put descriptors that the next one lists.
    void hear_others(int peer) {
        for (int other : std::vector<int>(peers_)) {
            while (other != peer && is_readable(other) && read_one(other)) {}
        }
    }

    static bool is_readable(int peer) {
        pollfd wanted{peer, POLLIN, 0};
        return poll(&wanted, 1, 0) == 1 && (wanted.revents & POLLIN) != 0;
    }

    void put(uint64_t key, int fd) {
        drop(key);
        kept_[key] = fd;
    }

    void drop(uint64_t key) {
        auto found = kept_.find(key);
        if (found == kept_.end()) return;
        close(found->second);
        kept_.erase(found);
    }

    bool list(int peer) {
        Message message = {};
        message.kind = Kind::put;
        std::vector<int> descriptors;
        for (const auto& [key, fd] : kept_) {
            message.keys[message.count++] = key;
            descriptors.push_back(fd);
            if (message.count < gshm::core::keeper::kMostKeys) continue;
            if (!send(peer, message, descriptors)) return false;
            message.count = 0;
            descriptors.clear();
        }
        return (message.count == 0 || send(peer, message, descriptors)) && end(peer);
    }

    bool end(int peer) {
        Message message = {};
        message.kind = Kind::end;
        message.count = 3;
        message.keys[0] = instance_;
        message.keys[1] = kept_.size();
        message.keys[2] = gshm::core::keeper::kVersion;
        return send(peer, message, {});
    }

    static bool send(int peer, const Message& message, const std::vector<int>& descriptors) {
        iovec part{const_cast<Message*>(&message), bytes_of(message)};
        gshm::core::Descriptors<gshm::core::keeper::kMostKeys> space;
        msghdr out = {};
        out.msg_iov = &part;
        out.msg_iovlen = 1;
        space.attach(out, descriptors);
        ssize_t sent = -1;
        while ((sent = sendmsg(peer, &out, MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
        return sent >= 0;
    }

    static bool receive(int peer, Message* message, std::vector<int>* descriptors) {
        iovec part{message, sizeof *message};
        gshm::core::Descriptors<gshm::core::keeper::kMostKeys> space;
        msghdr in = {};
        in.msg_iov = &part;
        in.msg_iovlen = 1;
        space.prepare(in);
        ssize_t got = recvmsg(peer, &in, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR) errno = EAGAIN;
        if (got < 0) return false;
        space.for_each(in, [&](int fd) { descriptors->push_back(fd); });
        bool whole = static_cast<size_t>(got) >= gshm::core::keeper::kHeadBytes &&
                     message->count <= gshm::core::keeper::kMostKeys &&
                     static_cast<size_t>(got) == bytes_of(*message) && (in.msg_flags & MSG_CTRUNC) == 0;
        if (whole) return true;
        // A descriptor was lost, so the keeper cannot keep its promise: it ends, and gshmd starts another one.
        for (int fd : *descriptors) close(fd);
        errno = EPROTO;
        return false;
    }

    SocketName name_;
    std::vector<int> peers_;
    std::unordered_map<uint64_t, int> kept_;
    uint64_t instance_ = 0;
    bool stopped_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    int listening = 0;
    socklen_t length = sizeof listening;
    bool started_by_gshmd =
        getsockopt(kListener, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening != 0;
    if (argc != 1 || !started_by_gshmd) {
        fprintf(stderr, "gshm-keeper holds the memory of gshmd while that is away. gshmd starts it; it ends with "
                        "`gshm shutdown`.\nusage: gshm-keeper (with a listening socket as descriptor 3)\n");
        return argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) ? 0 : 2;
    }
    // Terminal and session signals must not end a process that has to survive.
    for (int ignored : {SIGHUP, SIGINT, SIGPIPE}) signal(ignored, SIG_IGN);
    listen(kListener, 16);  // again: peers see the credentials of the process that called listen()
    Keeper().run();
    return 0;
}

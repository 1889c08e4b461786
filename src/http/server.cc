#include "http/server.h"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

namespace gshm::core::http {
namespace {

constexpr uint32_t kUnknownUser = UINT32_MAX;
// How soon a client is accepted again after no descriptor was left.
constexpr std::chrono::milliseconds kDescriptorPause{100};

std::string_view reason(int status) {
    switch (status) {
        case 200: return "OK";
        case 400: return "Bad Request";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 421: return "Misdirected Request";
        case 431: return "Request Header Fields Too Large";
        case 503: return "Service Unavailable";
        case 505: return "HTTP Version Not Supported";
        default: return "Internal Server Error";
    }
}

Response plain(int status, std::string text) {
    return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

// Of a Unix socket.
uint32_t user_of(int socket) {
    ucred peer = {};
    socklen_t bytes = sizeof peer;
    int domain = 0;
    socklen_t domain_bytes = sizeof domain;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0 || domain != AF_UNIX)
        return kUnknownUser;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.uid : kUnknownUser;
}

bool is_on_loopback(int socket) {
    sockaddr_storage address = {};
    socklen_t bytes = sizeof address;
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return false;
    if (address.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
    return address.ss_family == AF_INET &&
           (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
}

}  // namespace

struct Server::Connection {
    UniqueFd socket;
    size_t listener;
    uint32_t user;
    Clock::time_point deadline;
    // Sent, and then the rest of the request is read: a close before that would take the answer back.
    enum class State { reading, writing, draining } state = State::reading;
    std::string in = {};
    HeadEnd head_end = {};
    std::string out = {};
    size_t sent = 0;
};

Result<std::unique_ptr<Server>> Server::create(std::vector<UniqueFd> listeners, std::string path, Handler handler,
                                               Limits limits, std::function<void()> after_answers) {
    auto wake = UniqueFd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake) return fail_errno("eventfd");
    std::unique_ptr<Server> server(new Server(std::move(listeners), std::move(wake), std::move(path),
                                              std::move(handler), limits, std::move(after_answers)));
    server->thread_ = std::thread([self = server.get()] { self->run(); });
    return server;
}

Server::Server(std::vector<UniqueFd> listeners, UniqueFd wake, std::string path, Handler handler, Limits limits,
               std::function<void()> after_answers)
    : wake_(std::move(wake)),
      path_(std::move(path)),
      handler_(std::move(handler)),
      limits_(limits),
      after_answers_(std::move(after_answers)),
      listeners_(std::move(listeners)) {}

Server::~Server() {
    {
        MutexLock lock(mutex_);
        ends_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
}

void Server::add_listener(UniqueFd listener) {
    {
        MutexLock lock(mutex_);
        added_.push_back(std::move(listener));
    }
    wake();
}

void Server::wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t put = ::write(wake_.get(), &one, sizeof one);
}

bool Server::take_added() {
    uint64_t wakes = 0;
    [[maybe_unused]] ssize_t got = ::read(wake_.get(), &wakes, sizeof wakes);
    MutexLock lock(mutex_);
    for (auto& listener : std::exchange(added_, {})) listeners_.push_back(std::move(listener));
    return !ends_;
}

void Server::run() {
    std::vector<pollfd> polled;
    for (;;) {
        polled.clear();
        polled.push_back({wake_.get(), POLLIN, 0});
        for (const auto& listener : listeners_) {
            polled.push_back({is_short_of_descriptors_ ? -1 : listener.get(), POLLIN, 0});
        }
        auto next = Clock::time_point::max();
        bool answers = false;
        for (const auto& connection : connections_) {
            const bool writes = connection.state == Connection::State::writing;
            polled.push_back({connection.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
            next = std::min(next, connection.deadline);
            answers |= writes;
        }
        if (!answers && std::exchange(has_answered_, false) && after_answers_) after_answers_();
        if (is_short_of_descriptors_) next = std::min(next, Clock::now() + kDescriptorPause);
        int timeout_ms = -1;
        if (next != Clock::time_point::max()) {
            const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            timeout_ms = static_cast<int>(std::max<int64_t>(wait.count(), 0));
        }
        if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) return;
        const bool is_woken = polled[0].revents != 0;
        is_short_of_descriptors_ = false;
        const auto now = Clock::now();
        auto events = polled.begin() + 1 + static_cast<ptrdiff_t>(listeners_.size());
        for (auto at = connections_.begin(); at != connections_.end(); ++events) {
            bool goes_on = events->revents == 0 || serve(*at, events->revents);
            if (goes_on && at->deadline <= now) {
                const bool is_late = at->state == Connection::State::reading;
                if (is_late) answer(*at, plain(408, "no whole request has come in time"), true);
                goes_on = is_late && write(*at);
            }
            at = goes_on ? std::next(at) : connections_.erase(at);
        }
        for (size_t i = 0; i < listeners_.size(); ++i) {
            if (polled[1 + i].revents != 0) accept_at(i);
        }
        if (is_woken && !take_added()) return;
    }
}

bool Server::make_place(size_t listener, uint32_t user) {
    auto is_full = [&](bool of_user) {
        const auto count = std::ranges::count_if(connections_, [&](const auto& connection) {
            return connection.listener == listener && (!of_user || connection.user == user);
        });
        return static_cast<size_t>(count) >= (of_user ? limits_.connections_of_user : limits_.connections);
    };
    // In the order of their arrival.
    auto drop_first = [&](bool of_user) {
        for (auto state : {Connection::State::draining, Connection::State::reading}) {
            auto found = std::ranges::find_if(connections_, [&](const auto& connection) {
                return connection.listener == listener && connection.state == state &&
                       (!of_user || connection.user == user);
            });
            if (found == connections_.end()) continue;
            connections_.erase(found);
            return true;
        }
        return false;
    };
    if (user != kUnknownUser && is_full(true)) return drop_first(true);
    return !is_full(false) || drop_first(false);
}

void Server::accept_at(size_t listener) {
    auto socket = UniqueFd::adopt(accept4(listeners_[listener].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
        is_short_of_descriptors_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
        return;
    }
    const uint32_t user = user_of(socket.get());
    const bool has_place = make_place(listener, user);
    if (!has_place) {
        const std::string text = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        [[maybe_unused]] ssize_t put = send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
        return;
    }
    connections_.push_back({std::move(socket), listener, user, Clock::now() + limits_.request_time});
}

bool Server::serve(Connection& connection, short events) {
    switch (connection.state) {
        case Connection::State::reading: return read(connection);
        case Connection::State::writing: return (events & (POLLERR | POLLNVAL)) == 0 && write(connection);
        case Connection::State::draining: break;
    }
    char rest[4096];
    const ssize_t got = recv(connection.socket.get(), rest, sizeof rest, 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool Server::read(Connection& connection) {
    char buffer[4096];
    const ssize_t got = recv(connection.socket.get(), buffer, sizeof buffer, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.in.append(buffer, static_cast<size_t>(got));
    const auto found = connection.head_end.find(connection.in);
    if (!found) {
        answer(connection, plain(400, found.error().message), true);
        return write(connection);
    }
    const size_t end = *found;
    if (end == std::string::npos || end > limits_.head_bytes) {
        if (connection.in.size() <= limits_.head_bytes) return true;
        answer(connection, plain(431, fmt::format("a request has at most {} bytes", limits_.head_bytes)), true);
        return write(connection);
    }
    auto request = parse_request(std::string_view(connection.in).substr(0, end));
    if (request) {
        answer(connection, respond(connection, *request), request->method != "HEAD");
    } else {
        const int status = request.error().code == EPROTONOSUPPORT ? 505 : 400;
        answer(connection, plain(status, request.error().message), true);
    }
    return write(connection);
}

Response Server::respond(const Connection& connection, const Request& request) const {
    // Browsers, which send a Host, have no other way to a listener on loopback; other addresses are public anyway.
    if (!request.host.empty() && !is_host_of_loopback(request.host) &&
        is_on_loopback(listeners_[connection.listener].get()))
        return plain(421, "only the hosts localhost and numbers of addresses are served here, not other names");
    if (request.path != path_) return plain(404, fmt::format("there is nothing here but {}", path_));
    if (request.method != "GET" && request.method != "HEAD") return plain(405, "only GET and HEAD are served");
    return handler_(request);
}

void Server::answer(Connection& connection, Response response, bool with_body) {
    connection.in = {};
    connection.out =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
                    response.status, reason(response.status), response.type, response.body.size(),
                    response.status == 405 ? "Allow: GET, HEAD\r\n" : "");
    if (with_body) connection.out += response.body;
    connection.state = Connection::State::writing;
    connection.deadline = Clock::now() + limits_.answer_time;
    has_answered_ = true;
}

bool Server::write(Connection& connection) {
    while (connection.sent < connection.out.size()) {
        const ssize_t put = send(connection.socket.get(), connection.out.data() + connection.sent,
                                 connection.out.size() - connection.sent, MSG_NOSIGNAL);
        if (put < 0) return errno == EAGAIN || errno == EINTR;
        connection.sent += static_cast<size_t>(put);
    }
    connection.out = {};
    shutdown(connection.socket.get(), SHUT_WR);
    connection.state = Connection::State::draining;
    connection.deadline = Clock::now() + limits_.close_time;
    return true;
}

}  // namespace gshm::core::http

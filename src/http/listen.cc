// Sockets that listen: at an address and a port, or at a path.
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "http/server.h"

namespace gshm::core::http {
namespace {

constexpr int kBacklog = 64;

struct Address {
    sockaddr_storage socket = {};
    socklen_t bytes = 0;
    bool is_loopback = false;
};

Result<Address> parse(std::string_view text) {
    auto bad = [&] {
        return fail(EINVAL, "'{}' is no address with a port (examples: 127.0.0.1:9402, [::1]:9402)", text);
    };
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return bad();
    const std::string_view digits = text.substr(colon + 1);
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size()) return bad();
    std::string host(text.substr(0, colon));
    Address address;
    if (host.starts_with('[') && host.ends_with(']')) {
        auto& six = reinterpret_cast<sockaddr_in6&>(address.socket);
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(port);
        if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six.sin6_addr) != 1) return bad();
        if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return bad();
        address.bytes = sizeof six;
        address.is_loopback = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) != 0;
        return address;
    }
    if (host == "localhost") host = "127.0.0.1";
    auto& four = reinterpret_cast<sockaddr_in&>(address.socket);
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) return bad();
    address.bytes = sizeof four;
    address.is_loopback = (ntohl(four.sin_addr.s_addr) >> 24) == 127;
    return address;
}

std::string name_of(const sockaddr_storage& socket) {
    char host[INET6_ADDRSTRLEN] = "";
    if (socket.ss_family == AF_INET6) {
        const auto& six = reinterpret_cast<const sockaddr_in6&>(socket);
        inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
        return fmt::format("[{}]:{}", host, ntohs(six.sin6_port));
    }
    const auto& four = reinterpret_cast<const sockaddr_in&>(socket);
    inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
    return fmt::format("{}:{}", host, ntohs(four.sin_port));
}

}  // namespace

Status check_address(std::string_view address) {
    TRY(parse(address));
    return {};
}

bool are_one_address(std::string_view one, std::string_view other) {
    const auto first = parse(one);
    const auto second = parse(other);
    if (!first || !second) return false;
    const std::string name = name_of(first->socket);
    return name == name_of(second->socket) && !name.ends_with(":0");
}

Result<UniqueFd> listen_at_path(const std::string& path, mode_t mode) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return fail(ENAMETOOLONG, "the path of a socket is too long: {}", path);
    path.copy(address.sun_path, path.size());
    auto listener = UniqueFd::adopt(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) return fail_errno("socket");
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        return fail(errno, "cannot bind {}: {}", path, strerror(errno));
    }
    // Independent of the umask, and before the first connection.
    if (chmod(path.c_str(), mode) != 0) return fail(errno, "cannot set the mode of {}: {}", path, strerror(errno));
    if (listen(listener.get(), kBacklog) != 0) return fail_errno("listen");
    return listener;
}

Result<TcpListener> listen_at(std::string_view text) {
    Address address = TRY(parse(text));
    auto* raw = reinterpret_cast<sockaddr*>(&address.socket);
    auto listener = UniqueFd::adopt(socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) return fail_errno("socket");
    const int on = 1;
    // [::] and 0.0.0.0 are two addresses, whatever net.ipv6.bindv6only says.
    if (address.socket.ss_family == AF_INET6) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    // Answered connections of the last minute do not keep the address from the next gshmd.
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener.get(), raw, address.bytes) != 0 || listen(listener.get(), kBacklog) != 0) {
        return fail(errno, "cannot listen at {} for metrics: {}", text, strerror(errno));
    }
    if (getsockname(listener.get(), raw, &address.bytes) != 0) return fail_errno("getsockname");
    return TcpListener{std::move(listener), name_of(address.socket), address.is_loopback};
}

}  // namespace gshm::core::http

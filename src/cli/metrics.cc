#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/failure.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr long kPatienceSeconds = 30;

UniqueFd connect_to(Context& context, const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw Failure(ENAMETOOLONG, fmt::format("{} is too long", path));
    path.copy(address.sun_path, path.size());
    UniqueFd socket = UniqueFd::adopt(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) throw Failure::of_errno("socket");
    const timeval patience{kPatienceSeconds, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
    const int error = errno;
    (void)context.client();  // throws if no gshmd runs there
    throw Failure(error, fmt::format("gshmd has no metrics at {}: {}", path, std::strerror(error)),
                  "gshmd 0.1 has none; its log says if they could not be started");
}

// The body of the answer.
std::string ask(Context& context, bool openmetrics, bool with_process) {
    const UniqueFd socket = connect_to(context, context.dir() + "/" GSHM_METRICS_SOCKET_NAME);
    const std::string request =
        fmt::format("GET /metrics{} HTTP/1.1\r\nHost: gshmd\r\nAccept: {}\r\n\r\n", with_process ? "" : "?process=no",
                    openmetrics ? "application/openmetrics-text; version=1.0.0" : "text/plain");
    std::string answer;
    if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
        throw Failure::of_errno("cannot ask gshmd for its metrics");
    }
    char buffer[65536];
    for (;;) {
        const ssize_t got = ::recv(socket.get(), buffer, sizeof buffer, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) throw Failure(ETIMEDOUT, "gshmd does not answer");
        if (got < 0) throw Failure::of_errno("cannot read the metrics");
        if (got == 0) break;
        answer.append(buffer, static_cast<size_t>(got));
    }
    const size_t head = answer.find("\r\n\r\n");
    const std::string first = answer.substr(0, answer.find('\r'));
    if (head == std::string::npos) throw Failure(EPIPE, "gshmd ended before its answer");
    const std::string kLength = "\r\nContent-Length: ";
    const size_t length = answer.find(kLength);
    const std::string body = answer.substr(head + 4);
    if (!first.starts_with("HTTP/1.1 200 ")) {
        throw Failure(EBUSY, fmt::format("gshmd gives no metrics now: {}", printable(first)));
    }
    if (length > head || std::strtoull(answer.c_str() + length + kLength.size(), nullptr, 10) != body.size()) {
        throw Failure(EPIPE, "gshmd ended before its whole answer");
    }
    return body;
}

// In place of the file, which is complete at any time.
void write_file(const std::string& path, std::string_view text) {
    std::string temporary = path + ".XXXXXX";
    const UniqueFd file = UniqueFd::adopt(::mkostemp(temporary.data(), O_CLOEXEC));
    if (file.get() < 0) throw Failure::of_file(errno, fmt::format("{}: {}", path, std::strerror(errno)));
    try {
        write_all(file.get(), text.data(), text.size(), path);
        constexpr mode_t kForAll = 0644;
        if (::fchmod(file.get(), kForAll) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
            throw Failure::of_file(errno, fmt::format("{}: {}", path, std::strerror(errno)));
        }
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
}

}  // namespace

int cmd_metrics(Context& context, const MetricsArgs& args) {
    // A collector of files has process metrics of its own.
    const std::string text = ask(context, args.openmetrics, args.output.empty());
    if (!args.output.empty()) {
        write_file(args.output, text);
    } else if (context.json()) {
        Record record;
        record.add("format", args.openmetrics ? "openmetrics" : "prometheus").add("text", text);
        context.print(record);
    } else {
        context.print(text);
    }
    return 0;
}

}  // namespace gshm::cli

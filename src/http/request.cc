#include "http/request.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <utility>

namespace gshm::core::http {
namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
    return text;
}

bool equal_in_any_case(std::string_view one, std::string_view other) {
    return std::ranges::equal(one, other, [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
    });
}

// Up to the separator, which is removed from `rest` too.
std::string_view take_until(std::string_view& rest, char separator) {
    const size_t end = rest.find(separator);
    const std::string_view taken = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return taken;
}

bool is_token(std::string_view text) {
    constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
    return !text.empty() && std::ranges::all_of(text, [&](char byte) {
        return std::isalnum(static_cast<unsigned char>(byte)) != 0 || kMarks.find(byte) != std::string_view::npos;
    });
}

}  // namespace

Result<size_t> HeadEnd::find(std::string_view bytes) {
    for (;;) {
        const size_t line_end = bytes.find('\n', scanned_);
        if (line_end == std::string_view::npos) {
            scanned_ = bytes.size();
            return std::string_view::npos;
        }
        const size_t line = std::exchange(line_, line_end + 1);
        scanned_ = line_;
        const bool is_empty = line_end == line || (line_end == line + 1 && bytes[line] == '\r');
        if (is_empty && has_begun_) return line_;
        if (is_empty && ++empty_lines_ > kEmptyLines) return fail(EINVAL, "a request does not begin with empty lines");
        has_begun_ |= !is_empty;
    }
}

Result<Request> parse_request(std::string_view head) {
    const size_t begin = head.find_first_not_of("\r\n");
    if (begin == std::string_view::npos) return fail(EINVAL, "no request");
    head.remove_prefix(begin);
    std::string_view line = trimmed(take_until(head, '\n'));
    const std::string_view method = take_until(line, ' ');
    std::string_view target = take_until(line, ' ');
    const std::string_view version = line;
    if (!is_token(method) || target.empty() || !version.starts_with("HTTP/")) {
        return fail(EINVAL, "the first line is no HTTP request");
    }
    if (version != "HTTP/1.1" && version != "HTTP/1.0")
        return fail(EPROTONOSUPPORT, "only HTTP/1.1 and HTTP/1.0 are served");
    if (target.front() != '/') {
        // As a proxy gets it: http://host/path.
        const size_t host = target.find("://");
        const size_t path = host == std::string_view::npos ? host : target.find('/', host + 3);
        if (path == std::string_view::npos) return fail(EINVAL, "the target of the request is no path");
        target.remove_prefix(path);
    }
    Request request;
    request.method = method;
    request.path = take_until(target, '?');
    request.query = target;
    while (!head.empty()) {
        std::string_view field = trimmed(take_until(head, '\n'));
        if (field.empty()) break;
        const size_t colon = field.find(':');
        if (colon == std::string_view::npos || !is_token(field.substr(0, colon))) {
            return fail(EINVAL, "a header has no name");
        }
        if (equal_in_any_case(field.substr(0, colon), "Host")) {
            if (!request.host.empty()) return fail(EINVAL, "there are two headers Host");
            request.host = trimmed(field.substr(colon + 1));
        }
        if (!equal_in_any_case(field.substr(0, colon), "Accept")) continue;
        if (!request.accept.empty()) request.accept += ',';
        request.accept += trimmed(field.substr(colon + 1));
    }
    return request;
}

bool is_host_of_loopback(std::string_view host) {
    const bool is_six = host.starts_with('[');
    const size_t end = is_six ? host.find(']') : host.find(':');
    std::string_view port = end == std::string_view::npos ? std::string_view() : host.substr(end + (is_six ? 1 : 0));
    if (is_six && end == std::string_view::npos) return false;
    if (!port.empty() && (port.front() != ':' || port.find_first_not_of("0123456789", 1) != std::string_view::npos))
        return false;
    const std::string name(is_six ? host.substr(1, end - 1) : host.substr(0, end));
    in6_addr address;  // of either family
    if (is_six) return inet_pton(AF_INET6, name.c_str(), &address) == 1;
    return equal_in_any_case(name, "localhost") || inet_pton(AF_INET, name.c_str(), &address) == 1;
}

bool prefers_openmetrics(std::string_view accept) {
    double openmetrics = 0;
    double text = 0;
    while (!accept.empty()) {
        std::string_view range = take_until(accept, ',');
        const std::string_view type = trimmed(take_until(range, ';'));
        double quality = 1;
        bool other_version = false;
        while (!range.empty()) {
            std::string_view parameter = trimmed(take_until(range, ';'));
            const std::string_view name = trimmed(take_until(parameter, '='));
            const std::string_view value = trimmed(parameter);
            if (equal_in_any_case(name, "q")) {
                const char* end = value.data() + value.size();
                if (std::from_chars(value.data(), end, quality).ec != std::errc()) quality = 0;
            }
            if (equal_in_any_case(name, "version")) other_version = value != "1.0.0" && value != "\"1.0.0\"";
        }
        if (equal_in_any_case(type, "application/openmetrics-text") && !other_version) {
            openmetrics = std::max(openmetrics, quality);
        } else if (equal_in_any_case(type, "text/plain") || equal_in_any_case(type, "text/*") || type == "*/*") {
            text = std::max(text, quality);
        }
    }
    return openmetrics > 0 && openmetrics >= text;
}

}  // namespace gshm::core::http

// The head of an HTTP request, and which format of metrics its client wants.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace gshm::core::http {

struct Request {
    std::string method;
    std::string path;    // without the query
    std::string query;   // after '?'
    std::string accept;  // of all headers Accept; empty: none
    std::string host;    // of the header Host; empty: none
};

// The whole head, with its empty line. EINVAL: it is none; EPROTONOSUPPORT: of another HTTP than 1.0 and 1.1.
Result<Request> parse_request(std::string_view head);
// Looks for the end of a head that comes in parts. Each byte is looked at once.
class HeadEnd {
public:
    // bytes: all that have come. Where the head ends, with its empty line; npos: it is not complete. EINVAL: too many
    // empty lines before the request.
    Result<size_t> find(std::string_view bytes);

private:
    static constexpr int kEmptyLines = 2;  // permitted before the request
    size_t line_ = 0;                      // its begin
    size_t scanned_ = 0;
    int empty_lines_ = 0;
    bool has_begun_ = false;
};
// The value of Host is "localhost" or the number of an address, with or without a port. Any other name may be one that its
// owner lets point to this machine, for a browser that runs the owner's page (DNS rebinding).
bool is_host_of_loopback(std::string_view host);
// The value of Accept prefers OpenMetrics 1.0 to the text format of Prometheus.
bool prefers_openmetrics(std::string_view accept);

}  // namespace gshm::core::http

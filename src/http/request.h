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
};

// The whole head, with its empty line. EINVAL: it is none; EPROTONOSUPPORT: of another HTTP than 1.0 and 1.1.
Result<Request> parse_request(std::string_view head);
// Where the head ends, with its empty line; npos: it is not complete.
size_t end_of_head(std::string_view bytes);
// The value of Accept prefers OpenMetrics 1.0 to the text format of Prometheus.
bool prefers_openmetrics(std::string_view accept);

}  // namespace gshm::core::http

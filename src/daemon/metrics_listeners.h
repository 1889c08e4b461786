// The sockets that serve the metrics.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace gshm::core {

struct Options;
class RuntimeFolder;

struct MetricsListeners {
    std::vector<UniqueFd> sockets;
    std::vector<std::string> missing;  // addresses that could not be bound yet, and are tried again
};
// The Unix socket, and the addresses of the options. must_have: an address that cannot be had is an error; else it is
// missing, with an error in the log.
Result<MetricsListeners> listen_for_metrics(const RuntimeFolder& folder, const Options& options, bool must_have);
// Tries the missing addresses again.
void listen_again(MetricsListeners& listeners);

}  // namespace gshm::core

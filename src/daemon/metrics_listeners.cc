#include "daemon/metrics_listeners.h"

#include "base/log.h"
#include "daemon/options.h"
#include "daemon/runtime_folder.h"
#include "http/server.h"

namespace gshm::core {
namespace {

Result<UniqueFd> listen_at(const std::string& address) {
    auto listener = TRY(http::listen_at(address));
    log_info("metrics: http://{}/metrics", listener.address);
    if (!listener.is_loopback)
        log_warning("metrics at {} are for everybody who reaches that address: there are no passwords",
                    listener.address);
    return std::move(listener.socket);
}

}  // namespace

Result<MetricsListeners> listen_for_metrics(const RuntimeFolder& folder, const Options& options, bool must_have) {
    MetricsListeners listeners;
    if (auto socket = folder.listen_for_metrics()) listeners.sockets.push_back(std::move(*socket));
    else log_error("no metrics in the runtime folder: {}", socket.error().message);
    for (const auto& address : options.metrics) {
        if (address == kNoMetrics) continue;
        if (auto socket = listen_at(address)) {
            listeners.sockets.push_back(std::move(*socket));
        } else {
            if (must_have) return std::unexpected(socket.error());
            log_error("{}; gshmd serves without it, and tries again", socket.error().message);
            listeners.missing.push_back(address);
        }
    }
    return listeners;
}

void listen_again(MetricsListeners& listeners) {
    std::erase_if(listeners.missing, [&](const std::string& address) {
        auto socket = listen_at(address);
        if (!socket) return false;
        listeners.sockets.push_back(std::move(*socket));
        return true;
    });
}

}  // namespace gshm::core

// The metrics of gshmd, as docs/metrics.md lists them. All values are kept where they change; a scrape reads them, under
// the shared store lock for a moment, and counts nothing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/loop.h"
#include "daemon/metrics_listeners.h"
#include "daemon/stalled_holders.h"
#include "http/metric_set.h"
#include "http/server.h"

namespace gshm::core {

class Server;

class Metrics {
public:
    struct Start {
        uint64_t starts = 0;       // so far, of the memory that this gshmd serves
        uint64_t takeovers = 0;    // of these
        double recovery_s = 0;     // of the start that took up that memory
        bool has_resumed = false;  // there was something to take up
    };
    // Serves them at the listeners, in a thread of its own, until it is destroyed. The server must outlive it. Missing
    // addresses are tried again by the server's loop.
    static Result<std::unique_ptr<Metrics>> create(Server& server, MetricsListeners listeners, const Start& start);
    ~Metrics();

    Metrics(const Metrics&) = delete;
    Metrics& operator=(const Metrics&) = delete;

private:
    Metrics(Server& server, const Start& start) : server_(server), start_(start), stalled_(server) {}
    http::Response respond(const http::Request& request) EXCLUDES(store_lock);
    http::MetricSet collect() EXCLUDES(store_lock);
    void add_devices(http::MetricSet& metrics) EXCLUDES(store_lock);
    void add_requests(http::MetricSet& metrics) const;
    void add_transfers(http::MetricSet& metrics) const;
    void add_stalled(http::MetricSet& metrics) const;

    void await_missing();

    Server& server_;
    MetricsListeners listeners_;  // the missing ones
    std::optional<EventLoop::TimerId> retry_;
    const Start start_;
    StalledHolders stalled_;  // of the thread of http_
    std::unique_ptr<http::Server> http_;
};

// The commit that this gshmd was built from; "unknown" without one.
const char* built_commit();

}  // namespace gshm::core

#include "daemon/metrics.h"

#include <ranges>

#include "daemon/process_metrics.h"
#include "daemon/request_counters.h"
#include "daemon/server.h"
#include "fuse/operation_counters.h"
#include "memory/transfer_counters.h"

namespace gshm::core {
namespace {

constexpr const char* kPath = "/metrics";
// For node_exporter's textfile collector, which has process metrics of its own.
constexpr const char* kWithoutProcess = "process=no";

constexpr const char* kDevice = "device";
// Between two tries to listen at an address.
constexpr std::chrono::seconds kRetryPause{5};

// "OpenObjects" -> "open_objects"
std::string operation_name(wire::RequestBody kind) {
    std::string name;
    for (const char* at = wire::EnumNameRequestBody(kind); *at != '\0'; ++at) {
        const bool is_upper = *at >= 'A' && *at <= 'Z';
        if (is_upper && !name.empty()) name += '_';
        name += is_upper ? static_cast<char>(*at - 'A' + 'a') : *at;
    }
    return name;
}

const char* name_of(TransferPath path) {
    switch (path) {
        case TransferPath::direct: return "direct";
        case TransferPath::cached: return "cached";
        case TransferPath::hole: return "hole";
        case TransferPath::cufile: return "cufile";
        case TransferPath::staged: return "staged";
        case TransferPath::mount: return "mount";
    }
    return "";
}

const char* name_of(ReclaimReason reason) {
    switch (reason) {
        case ReclaimReason::unlinked: return "unlinked";
        case ReclaimReason::client_died: return "client_died";
        case ReclaimReason::ttl: return "ttl";
        case ReclaimReason::evicted: return "evicted";
    }
    return "";
}

const char* name_of(TransferDirection direction) {
    return direction == TransferDirection::in ? "in" : "out";
}

constexpr TransferDirection kDirections[] = {TransferDirection::in, TransferDirection::out};

double as_double(auto value) {
    return static_cast<double>(value);
}

// Copied under the lock, and written without it.
struct OfDevice {
    DeviceInfo info;
    uint64_t used_bytes = 0;
    bool has_failed = false;
    Account account;
    int64_t readers = 0;
    int64_t writers = 0;
    std::array<uint64_t, kReclaimReasons> reclaimed_bytes = {};
    uint64_t evictions[2] = {};
};

// For the LockReport, which has no other shared holds.
class SharedHold {
public:
    explicit SharedHold(std::source_location caller = std::source_location::current()) {
        if (LockReport::is_on()) hold_.begin(caller);
    }
    ~SharedHold() {
        if (LockReport::is_on()) hold_.end();
    }
    SharedHold(const SharedHold&) = delete;
    SharedHold& operator=(const SharedHold&) = delete;

private:
    LockReport::Hold hold_;
};

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::create(Server& server, MetricsListeners listeners, const Start& start) {
    std::unique_ptr<Metrics> metrics(new Metrics(server, start));
    auto* self = metrics.get();
    (void)process_start_time();  // while there are descriptors
    metrics->http_ = TRY(http::Server::create(
        std::exchange(listeners.sockets, {}), kPath,
        [self](const http::Request& request) { return self->respond(request); }, {},
        [self] { self->stalled_.look(); }));
    metrics->listeners_ = std::move(listeners);
    metrics->await_missing();
    return metrics;
}

Metrics::~Metrics() {
    if (retry_) server_.loop().cancel(*retry_);
}

void Metrics::await_missing() {
    retry_.reset();
    if (listeners_.missing.empty()) return;
    retry_ = server_.loop().after(kRetryPause, [this] {
        listen_again(listeners_);
        for (auto& socket : std::exchange(listeners_.sockets, {})) http_->add_listener(std::move(socket));
        await_missing();
    });
}

http::Response Metrics::respond(const http::Request& request) {
    http::MetricSet metrics = collect();
    if (request.query != kWithoutProcess) add_process_metrics(metrics);
    if (http::prefers_openmetrics(request.accept)) {
        return {200, "application/openmetrics-text; version=1.0.0; charset=utf-8", http::openmetrics_text(metrics)};
    }
    return {200, "text/plain; version=0.0.4; charset=utf-8", http::prometheus_text(metrics)};
}

http::MetricSet Metrics::collect() {
    http::MetricSet metrics;
    metrics.gauge("gshm_build_info", "The version of gshmd, its newest protocol and its commit.");
    metrics.add({{"version", wire::kProductVersion},
                 {"protocol", std::to_string(server_.protocols().highest)},
                 {"commit", built_commit()}},
                1);
    add_devices(metrics);
    add_stalled(metrics);
    add_requests(metrics);
    add_transfers(metrics);
    if (const auto start = process_start_time()) {
        metrics.gauge("gshm_start_time_seconds", "Start of gshmd since the epoch.");
        metrics.add(*start);
    }
    metrics.counter("gshm_starts_total", "Times that a gshmd has begun to serve this memory, takeovers included.");
    metrics.add(as_double(start_.starts));
    metrics.counter("gshm_takeovers_total", "Times that a gshmd has taken over from a running one, with --takeover.");
    metrics.add(as_double(start_.takeovers));
    if (start_.has_resumed) {
        metrics.gauge("gshm_recovery_duration_seconds",
                      "How long this gshmd took to take up what an earlier one has left.");
        metrics.add(start_.recovery_s);
    }
    return metrics;
}

void Metrics::add_devices(http::MetricSet& metrics) {
    const size_t count = server_.devices().size();
    std::vector<OfDevice> devices(count);
    size_t sessions = 0;
    size_t files = 0;
    size_t extents = 0;
    std::optional<bool> has_keeper;
    {
        SharedStoreLock lock(server_.loop().store_mutex());
        const SharedHold hold;
        const Store& store = server_.store_to_read();
        for (DeviceIndex i = 0; i < count; ++i) {
            OfDevice& device = devices[i];
            device.info = server_.devices().info(i);
            device.has_failed = !server_.devices().failure(i).empty();
            device.account = store.use(i);
            if (!server_.tiers_to_read().takes_from(i)) device.account.evictable_bytes = 0;
            for (size_t reason = 0; reason < kReclaimReasons; ++reason) {
                device.reclaimed_bytes[reason] = store.counts().reclaimed_bytes(i, static_cast<ReclaimReason>(reason));
            }
            for (bool to_folder : {false, true}) device.evictions[to_folder] = store.counts().evictions(i, to_folder);
            device.readers = store.counts().readers(i);
            device.writers = store.counts().writers(i);
        }
        sessions = store.session_count();
        files = store.open_file_count();
        extents = store.extents().count();
        if (server_.survival().kind() == KeeperKind::process) has_keeper = server_.survival().keeper_pid() != 0;
        if (server_.survival().kind() == KeeperKind::systemd) has_keeper = server_.survival().can_keep();
    }
    for (DeviceIndex i = 0; i < count; ++i) devices[i].used_bytes = server_.devices().used_bytes(i);

    metrics.gauge("gshm_device_info",
                  "Identity of the device. uuid and UUID are the same, for joins with other exporters.");
    for (const auto& device : devices) {
        metrics.add({{kDevice, device.info.name},
                     {"uuid", device.info.uuid},
                     {"UUID", device.info.uuid},
                     {"model", device.info.model},
                     {"pci_bus_id", device.info.pci_bus_id}},
                    1);
    }
    auto gauge = [&](const char* name, const char* help, auto value) {
        metrics.gauge(name, help);
        for (const auto& device : devices) metrics.add({{kDevice, device.info.name}}, as_double(value(device)));
    };
    gauge("gshm_device_capacity_bytes", "Memory that gshmd may use of the device.",
          [](const OfDevice& device) { return device.info.capacity_bytes; });
    gauge("gshm_device_used_bytes", "Memory that gshmd has allocated on the device for objects.",
          [](const OfDevice& device) { return device.used_bytes; });
    gauge("gshm_device_object_bytes", "Bytes of the objects on the device.",
          [](const OfDevice& device) { return device.account.object_bytes; });
    gauge("gshm_device_unlinked_bytes",
          "Bytes without a name that are still held: of removed objects, and former memory.",
          [](const OfDevice& device) { return device.account.unlinked_bytes; });
    gauge(
        "gshm_device_evictable_bytes",
        "Bytes of the objects that may leave the device for a tier, whether it has room or not. 0: no tier takes them.",
        [](const OfDevice& device) { return device.account.evictable_bytes; });
    gauge("gshm_device_evicted_bytes", "Bytes of the objects of the device that are in a tier.",
          [](const OfDevice& device) { return device.account.evicted_bytes; });
    gauge("gshm_device_evicted_objects", "Objects of the device that are in a tier.",
          [](const OfDevice& device) { return device.account.evicted_objects; });
    gauge("gshm_device_failed", "1: the device has failed, and is refused until gshmd is started again.",
          [](const OfDevice& device) { return device.has_failed ? 1 : 0; });

    metrics.gauge("gshm_objects", "Objects whose bytes are on the device.");
    for (const auto& device : devices) {
        const Account& account = device.account;
        metrics.add({{kDevice, device.info.name}, {"state", "open"}},
                    as_double(account.objects - account.sealed_objects));
        metrics.add({{kDevice, device.info.name}, {"state", "sealed"}}, as_double(account.sealed_objects));
    }
    metrics.gauge("gshm_extents", "Allocations of memory.");
    metrics.add(as_double(extents));
    metrics.gauge("gshm_sessions", "Connected clients, and those of an earlier gshmd that have not come back yet.");
    metrics.add(as_double(sessions));
    metrics.gauge("gshm_leases", "Uses of objects by sessions.");
    for (const auto& device : devices) {
        metrics.add({{kDevice, device.info.name}, {"access", "read"}}, as_double(device.readers));
        metrics.add({{kDevice, device.info.name}, {"access", "write"}}, as_double(device.writers));
    }
    metrics.gauge("gshm_mount_open_files", "Open files of the mount.");
    metrics.add(as_double(files));
    if (has_keeper) {
        metrics.gauge("gshm_keeper_up",
                      "1: a keeper is there to hold the memory if gshmd is killed. With systemd always 1.");
        metrics.add(*has_keeper ? 1 : 0);
    }
    metrics.counter("gshm_reclaimed_bytes_total", "Bytes of objects that were given back to the device, by cause.");
    for (const auto& device : devices) {
        for (size_t reason = 0; reason < kReclaimReasons; ++reason) {
            metrics.add({{kDevice, device.info.name}, {"reason", name_of(static_cast<ReclaimReason>(reason))}},
                        as_double(device.reclaimed_bytes[reason]));
        }
    }
    metrics.counter("gshm_evictions_total", "Objects that have left the device for a tier.");
    for (const auto& device : devices) {
        metrics.add({{kDevice, device.info.name}, {"to", "host"}}, as_double(device.evictions[0]));
        metrics.add({{kDevice, device.info.name}, {"to", "folder"}}, as_double(device.evictions[1]));
    }
}

void Metrics::add_stalled(http::MetricSet& metrics) const {
    constexpr const char* kNames[StalledHolders::kStates] = {"stopped", "dead"};
    const auto& found = stalled_.found();
    metrics.gauge("gshm_stalled_sessions", "Sessions whose process is stopped, or dead but not gone yet.");
    for (size_t state = 0; state < StalledHolders::kStates; ++state) {
        metrics.add({{"state", kNames[state]}}, as_double(found[state].sessions));
    }
    metrics.gauge("gshm_stalled_bytes", "Bytes of the objects that stalled sessions have open.");
    for (size_t state = 0; state < StalledHolders::kStates; ++state) {
        for (DeviceIndex i = 0; i < server_.devices().size(); ++i) {
            const uint64_t bytes = i < found[state].bytes.size() ? found[state].bytes[i] : 0;
            metrics.add({{kDevice, server_.devices().info(i).name}, {"state", kNames[state]}}, as_double(bytes));
        }
    }
}

void Metrics::add_requests(http::MetricSet& metrics) const {
    const auto kinds = RequestCounters::kinds();
    metrics.counter("gshm_requests_total", "Requests of clients that were answered, with their result.");
    for (const auto& kind : kinds) {
        const std::string operation = operation_name(kind.kind);
        for (const auto& [result, requests] : kind.results) {
            metrics.add({{"operation", operation}, {"result", result}}, as_double(requests));
        }
    }
    metrics.histogram("gshm_request_duration_seconds", "From the arrival of a request to its answer.");
    for (const auto& kind : kinds) metrics.add({{"operation", operation_name(kind.kind)}}, kind.durations);
    metrics.counter("gshm_mount_operations_total", "Requests of the kernel for the mount that were answered.");
    for (const auto& [operation, requests] : fuse::OperationCounters::sums()) {
        metrics.add({{"operation", operation}}, as_double(requests));
    }
    metrics.counter(
        "gshm_limit_refusals_total",
        "Requests refused because a limit was reached: of a user, of a directory, of pinned memory or of names.");
    metrics.add(as_double(RequestCounters::refusals_of_limits() + fuse::OperationCounters::refusals_of_limits()));
}

void Metrics::add_transfers(http::MetricSet& metrics) const {
    const size_t count = server_.devices().size();
    std::vector<std::array<TransferCounters::Sums, 2>> sums(count);
    for (DeviceIndex i = 0; i < count; ++i) {
        for (auto direction : kDirections)
            sums[i][static_cast<size_t>(direction)] = TransferCounters::sums(i, direction);
    }
    metrics.gauge("gshm_transfers", "Transfers between files and objects that are under way.");
    metrics.add(as_double(server_.rings().under_way()->load(std::memory_order_relaxed)));
    metrics.counter("gshm_transfer_bytes_total", "Bytes that have passed through gshmd into objects and out of them.");
    for (DeviceIndex i = 0; i < count; ++i) {
        const std::string name = server_.devices().info(i).name;
        for (auto direction : kDirections) {
            for (size_t path = 0; path < kTransferPaths; ++path) {
                metrics.add({{kDevice, name},
                             {"direction", name_of(direction)},
                             {"path", name_of(static_cast<TransferPath>(path))}},
                            as_double(sums[i][static_cast<size_t>(direction)].bytes[path]));
            }
        }
    }
    metrics.histogram("gshm_transfer_duration_seconds", "Durations of transfers, without those of the mount.");
    for (DeviceIndex i = 0; i < count; ++i) {
        const std::string name = server_.devices().info(i).name;
        for (auto direction : kDirections) {
            metrics.add({{kDevice, name}, {"direction", name_of(direction)}},
                        sums[i][static_cast<size_t>(direction)].durations);
        }
    }
}

}  // namespace gshm::core

// Metric families with their values, for one scrape, and their text forms. The model of the families and the Prometheus
// text are those of prometheus-cpp; it has no OpenMetrics (docs/adr/0027-metrics-are-collected-at-the-scrape.md).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

#include "base/durations.h"

namespace gshm::core::http {

class MetricSet {
public:
    using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

    // Begins a family; add() then adds its values. The name of a counter ends in _total.
    void gauge(std::string name, std::string help) {
        begin(std::move(name), std::move(help), prometheus::MetricType::Gauge);
    }
    void counter(std::string name, std::string help) {
        begin(std::move(name), std::move(help), prometheus::MetricType::Counter);
    }
    void histogram(std::string name, std::string help) {
        begin(std::move(name), std::move(help), prometheus::MetricType::Histogram);
    }
    void add(Labels labels, double value);
    void add(double value) { add({}, value); }
    // In seconds.
    void add(Labels labels, const Durations& durations);

    const std::vector<prometheus::MetricFamily>& families() const { return families_; }

private:
    void begin(std::string name, std::string help, prometheus::MetricType type);
    prometheus::ClientMetric& next(Labels labels);

    std::vector<prometheus::MetricFamily> families_;
};

// The text format of Prometheus, version 0.0.4.
std::string prometheus_text(const MetricSet& metrics);
// OpenMetrics 1.0.0.
std::string openmetrics_text(const MetricSet& metrics);

}  // namespace gshm::core::http

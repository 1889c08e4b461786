#include "http/metric_set.h"

#include <cassert>
#include <cmath>

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

namespace gshm::core::http {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void MetricSet::begin(std::string name, std::string help, MetricType type) {
    assert((type == MetricType::Counter) == name.ends_with("_total"));
    families_.push_back({std::move(name), std::move(help), type, {}});
}

ClientMetric& MetricSet::next(Labels labels) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [name, value] : labels) metric.label.push_back({std::string(name), std::string(value)});
    return metric;
}

void MetricSet::add(Labels labels, double value) {
    ClientMetric& metric = next(labels);
    if (families_.back().type == MetricType::Counter) metric.counter.value = value;
    else metric.gauge.value = value;
}

void MetricSet::add(Labels labels, const Durations& durations) {
    constexpr double kSecondNs = 1e9;
    auto& histogram = next(labels).histogram;
    for (size_t i = 0; i < durations.counts.size(); ++i) {
        histogram.sample_count += durations.counts[i];
        const double bound =
            i < kDurationBoundsNs.size() ? static_cast<double>(kDurationBoundsNs[i]) / kSecondNs : INFINITY;
        histogram.bucket.push_back({histogram.sample_count, bound});
    }
    histogram.sample_sum = static_cast<double>(durations.sum_ns) / kSecondNs;
}

std::string prometheus_text(const MetricSet& metrics) {
    return prometheus::TextSerializer().Serialize(metrics.families());
}

namespace {

// Backslashes, quotes and newlines.
std::string escaped(std::string_view text) {
    std::string result;
    for (char byte : text) {
        if (byte == '\n') result += "\\n";
        else if (byte == '\\' || byte == '"') (result += '\\') += byte;
        else result += byte;
    }
    return result;
}

std::string number(double value) {
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    if (std::isnan(value)) return "NaN";
    return fmt::format("{}", value);
}

// With a point or an exponent, as OpenMetrics asks for.
std::string bound(double value) {
    std::string text = number(value);
    if (text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
    return text;
}

std::string_view type_name(MetricType type) {
    switch (type) {
        case MetricType::Counter: return "counter";
        case MetricType::Gauge: return "gauge";
        case MetricType::Histogram: return "histogram";
        default: return "unknown";
    }
}

class Writer {
public:
    explicit Writer(std::string& out) : out_(out) {}

    void family(const MetricFamily& family) {
        // A counter's family has the name without _total, which its samples have.
        std::string_view name = family.name;
        if (family.type == MetricType::Counter) name.remove_suffix(std::string_view("_total").size());
        append("# TYPE {} {}\n", name, type_name(family.type));
        for (std::string_view unit : {"seconds", "bytes"}) {
            if (name.ends_with(fmt::format("_{}", unit))) append("# UNIT {} {}\n", name, unit);
        }
        append("# HELP {} {}\n", name, escaped(family.help));
        for (const auto& metric : family.metric) sample(family, metric);
    }

private:
    template <typename... Args>
    void append(fmt::format_string<Args...> format, Args&&... args) {
        fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    }

    void sample(const MetricFamily& family, const ClientMetric& metric) {
        std::string labels;
        for (const auto& label : metric.label) {
            labels += fmt::format("{}{}=\"{}\"", labels.empty() ? "" : ",", label.name, escaped(label.value));
        }
        const std::string in_braces = labels.empty() ? "" : "{" + labels + "}";
        if (family.type != MetricType::Histogram) {
            const bool counts = family.type == MetricType::Counter;
            append("{}{} {}\n", family.name, in_braces, number(counts ? metric.counter.value : metric.gauge.value));
            return;
        }
        const std::string before_bound = labels.empty() ? "" : labels + ",";
        for (const auto& bucket : metric.histogram.bucket) {
            append("{}_bucket{{{}le=\"{}\"}} {}\n", family.name, before_bound, bound(bucket.upper_bound),
                   bucket.cumulative_count);
        }
        append("{}_count{} {}\n", family.name, in_braces, metric.histogram.sample_count);
        append("{}_sum{} {}\n", family.name, in_braces, number(metric.histogram.sample_sum));
    }

    std::string& out_;
};

}  // namespace

std::string openmetrics_text(const MetricSet& metrics) {
    std::string out;
    Writer writer(out);
    for (const auto& family : metrics.families()) writer.family(family);
    return out + "# EOF\n";
}

}  // namespace gshm::core::http

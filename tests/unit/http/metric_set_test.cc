// The text forms of metrics, as exact text.
#include <gtest/gtest.h>

#include "http/metric_set.h"

namespace gshm::core::http {
namespace {

MetricSet sample() {
    MetricSet metrics;
    metrics.gauge("gshm_objects", "Objects.");
    metrics.add({{"device", "cuda:0"}, {"state", "open"}}, 3);
    metrics.add({{"device", "a\"b\\c\nd"}, {"state", "sealed"}}, 0.25);
    metrics.counter("gshm_moved_bytes_total", "Bytes.");
    metrics.add(9007199254740991.0);
    return metrics;
}

TEST(MetricSet, PrometheusText) {
    EXPECT_EQ(prometheus_text(sample()), "# HELP gshm_objects Objects.\n"
                                         "# TYPE gshm_objects gauge\n"
                                         "gshm_objects{device=\"cuda:0\",state=\"open\"} 3\n"
                                         "gshm_objects{device=\"a\\\"b\\\\c\\nd\",state=\"sealed\"} 0.25\n"
                                         "# HELP gshm_moved_bytes_total Bytes.\n"
                                         "# TYPE gshm_moved_bytes_total counter\n"
                                         "gshm_moved_bytes_total 9007199254740991\n");
}

TEST(MetricSet, OpenMetricsText) {
    EXPECT_EQ(openmetrics_text(sample()), "# TYPE gshm_objects gauge\n"
                                          "# HELP gshm_objects Objects.\n"
                                          "gshm_objects{device=\"cuda:0\",state=\"open\"} 3\n"
                                          "gshm_objects{device=\"a\\\"b\\\\c\\nd\",state=\"sealed\"} 0.25\n"
                                          "# TYPE gshm_moved_bytes counter\n"
                                          "# UNIT gshm_moved_bytes bytes\n"
                                          "# HELP gshm_moved_bytes Bytes.\n"
                                          "gshm_moved_bytes_total 9007199254740991\n"
                                          "# EOF\n");
    EXPECT_EQ(openmetrics_text({}), "# EOF\n");
}

// A bound belongs to its bucket, as `le` says.
TEST(MetricSet, BucketsOfAHistogramAreCumulative) {
    CountedDurations counted;
    for (uint64_t ns : {0u, 5'000u, 5'001u, 1'000'000'000u, 1'000'000'001u}) counted.add(ns);
    Durations durations;
    durations.add(counted);
    EXPECT_EQ(durations.count(), 5u);
    MetricSet metrics;
    metrics.histogram("gshm_request_duration_seconds", "Durations.");
    metrics.add({{"operation", "ping"}}, durations);
    metrics.add({}, Durations{});
    const std::string text = openmetrics_text(metrics);
    auto has = [&](const std::string& line) { return text.find("\n" + line + "\n") != std::string::npos; };
    EXPECT_TRUE(text.starts_with("# TYPE gshm_request_duration_seconds histogram\n"
                                 "# UNIT gshm_request_duration_seconds seconds\n"));
    EXPECT_TRUE(has("gshm_request_duration_seconds_bucket{operation=\"ping\",le=\"5e-06\"} 2")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_bucket{operation=\"ping\",le=\"1e-05\"} 3")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_bucket{operation=\"ping\",le=\"0.5\"} 3")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_bucket{operation=\"ping\",le=\"1.0\"} 4")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_bucket{operation=\"ping\",le=\"+Inf\"} 5")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_count{operation=\"ping\"} 5")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_sum{operation=\"ping\"} 2.000010002")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_bucket{le=\"+Inf\"} 0")) << text;
    EXPECT_TRUE(has("gshm_request_duration_seconds_count 0")) << text;
    const std::string prometheus = prometheus_text(metrics);
    EXPECT_NE(prometheus.find("gshm_request_duration_seconds_bucket{operation=\"ping\",le=\"+Inf\"} 5\n"),
              std::string::npos)
        << prometheus;
}

}  // namespace
}  // namespace gshm::core::http

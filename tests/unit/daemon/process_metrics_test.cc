// The metrics of the process when no descriptor is free.
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "daemon/process_metrics.h"

namespace gshm::core {
namespace {

std::string text() {
    http::MetricSet metrics;
    add_process_metrics(metrics);
    return http::prometheus_text(metrics);
}

TEST(MetricSetOfTheProcess, LeavesOutWhatCannotBeRead) {
    constexpr const char* kFamilies[] = {"process_cpu_seconds_total", "process_resident_memory_bytes",
                                         "process_virtual_memory_bytes"};
    for (const char* family : kFamilies) EXPECT_NE(text().find(family), std::string::npos) << family;
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none = {0, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const std::string short_of_descriptors = text();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (const char* family : kFamilies) {
        EXPECT_EQ(short_of_descriptors.find(family), std::string::npos) << short_of_descriptors;
    }
    EXPECT_NE(short_of_descriptors.find("process_max_fds 0"), std::string::npos) << short_of_descriptors;
}

}  // namespace
}  // namespace gshm::core

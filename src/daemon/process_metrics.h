// The standard metrics of a process: memory, processor time, descriptors, start.
#pragma once

#include <optional>

#include "http/metric_set.h"

namespace gshm::core {

// What cannot be read is left out: no descriptor is free. In one thread at a time.
void add_process_metrics(http::MetricSet& metrics);
// Seconds since the epoch; the same in all calls, once known. In one thread at a time.
std::optional<double> process_start_time();

}  // namespace gshm::core

// The standard metrics of a process: memory, processor time, descriptors, start.
#pragma once

#include "http/metric_set.h"

namespace gshm::core {

void add_process_metrics(http::MetricSet& metrics);
// Seconds since the epoch.
double process_start_time();

}  // namespace gshm::core

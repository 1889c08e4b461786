// The findings of `gshm doctor`, one line each. The checks print nothing, and read from a Machine that may be
// simulated.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/machine.h"
#include "cli/support/record.h"
#include <gshm/gshm.hpp>

namespace gshm::cli {

class Context;

enum class Health {
    ok,
    warning,  // gshm works, but slowly or not for long
    missing,  // absent; gshm works without it unless `needed` is set
};

struct Finding {
    std::string check;  // an identifier for programs, the same in every version
    Health health = Health::ok;
    std::string found;    // the observation, for people
    std::string remedy;   // the action to take, a clause without a full stop; empty if there is none
    bool needed = false;  // for Health::missing: gshm cannot work without it
    std::optional<Record> details;
};
using Findings = std::vector<Finding>;

// The state of the daemon, if one answers, and its devices.
struct DaemonState {
    std::optional<DaemonInfo> info;
    std::vector<DeviceInfo> devices;
    int status = 0;       // the -errno of a daemon that does not answer
    std::string failure;  // the same as text
};
DaemonState ask_daemon(Context& context);

// The GPUs that the library sees in this process. An empty list is not a failure.
struct LocalGpus {
    std::vector<DeviceInfo> gpus;
    std::string failure;  // the reason for an empty list
};
LocalGpus find_local_gpus();

// ---- the checks; `process` is the one whose limits are checked: "self", or a pid ----
void check_driver(const Machine& machine, const LocalGpus& local, Findings& ret_findings);
void check_gpus(const Machine& machine, const LocalGpus& local, Findings& ret_findings);
void check_fabric(const Machine& machine, const LocalGpus& local, Findings& ret_findings);
void check_dmabuf(const LocalGpus& local, Findings& ret_findings);
void check_gpudirect_rdma(const Machine& machine, const LocalGpus& local, Findings& ret_findings);
void check_cufile(const Machine& machine, const LocalGpus& local, Findings& ret_findings);
void check_rdma_devices(const Machine& machine, Findings& ret_findings);
void check_io_uring(const Machine& machine, Findings& ret_findings);
void check_fuse(const Machine& machine, Findings& ret_findings);
void check_memlock(const Machine& machine, const std::string& process, Findings& ret_findings);
void check_shared_memory(const Machine& machine, Findings& ret_findings);
void check_descriptors(const Machine& machine, const std::string& process, Findings& ret_findings);
void check_numa(const Machine& machine, const LocalGpus& local, Findings& ret_findings);
void check_keepers(const Machine& machine, Findings& ret_findings);
void check_daemon(const Machine& machine, Context& context, const DaemonState& daemon, Findings& ret_findings);

// NVIDIA GPUs on the PCI bus, with or without a driver.
struct PciGpu {
    std::string address;  // "0000:3b:00.0"
    std::string uuid;     // "" if the driver does not report it
    std::string model;    // likewise
};
std::vector<PciGpu> list_pci_gpus(const Machine& machine);

}  // namespace gshm::cli

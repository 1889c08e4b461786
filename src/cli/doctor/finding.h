// What `gshm doctor` finds: one line each. The checks are functions without output of their own, on a Machine that may
// be a made-up one.
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
    warning,  // gshm works, but slower than it could, or not for long
    missing,  // not there; gshm goes without it unless it is needed
};

struct Finding {
    std::string check;  // a word for programs, the same in every version
    Health health = Health::ok;
    std::string found;  // what is the case
    std::string
        remedy;  // what a person can do about it, in a clause without a full stop; empty if there is nothing to do
    bool needed = false;  // of what is missing: gshm cannot work without it
    std::optional<Record> details;
};
using Findings = std::vector<Finding>;

// The daemon, if one answers, and what it has.
struct DaemonState {
    std::optional<DaemonInfo> info;
    std::vector<DeviceInfo> devices;
    int status = 0;       // why not, if it does not answer
    std::string failure;  // the same for people
};
DaemonState ask_daemon(Context& context);

// GPUs as the library sees them in this process; none is no failure.
struct LocalGpus {
    std::vector<DeviceInfo> gpus;
    std::string failure;  // why there are none
};
LocalGpus find_local_gpus();

// ---- the checks; those that take `process` look at that one's limits: "self", or a pid ----
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

// NVIDIA's GPUs on the PCI bus, whether a driver has them or not.
struct PciGpu {
    std::string address;  // "0000:3b:00.0"
    std::string uuid;     // "" if the driver does not say
    std::string model;    // the same
};
std::vector<PciGpu> list_pci_gpus(const Machine& machine);

}  // namespace gshm::cli

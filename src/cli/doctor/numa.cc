// The NUMA distance of each GPU to each disk and network card. Traffic to another node crosses the interconnect of the
// processors.
#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "cli/doctor/finding.h"

namespace gshm::cli {
namespace {

constexpr int kHere = 10;  // the kernel's distance from a node to itself

struct Neighbour {
    const char* kind;  // "disk", "nic"
    std::string name;
    int node;
};

// The node of a device, or of its nearest ancestor that has one; -1 if unknown. For a disk it is the controller's.
int node_of(const Machine& machine, const std::string& path) {
    for (auto folder = machine.resolve(path); folder.starts_with("/sys/devices/");
         folder = folder.substr(0, folder.rfind('/')))
        if (const auto node = machine.read_number(folder + "/numa_node")) return static_cast<int>(*node);
    return static_cast<int>(machine.read_number(path + "/device/numa_node").value_or(-1));
}

// Distances between nodes by their numbers. A row has a column for each existing node, in order.
using Distances = std::map<std::pair<int, int>, int>;
Distances read_distances(const Machine& machine) {
    std::vector<int> nodes;
    for (const auto& name : machine.list("/sys/devices/system/node")) {
        int node = 0;
        constexpr std::string_view kPrefix = "node";
        if (!name.starts_with(kPrefix)) continue;
        const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), node);
        if (error == std::errc() && end == name.data() + name.size()) nodes.push_back(node);
    }
    std::ranges::sort(nodes);
    Distances distances;
    for (const int from : nodes) {
        const auto row =
            words_of(machine.read(fmt::format("/sys/devices/system/node/node{}/distance", from)).value_or(""));
        for (size_t i = 0; i < std::min(row.size(), nodes.size()); ++i)
            distances[{from, nodes[i]}] = std::atoi(row[i].c_str());
    }
    return distances;
}

std::vector<Neighbour> list_neighbours(const Machine& machine) {
    std::vector<Neighbour> neighbours;
    const auto add = [&](const char* kind, const char* folder) {
        for (const auto& name : machine.list(folder)) {
            const auto path = fmt::format("{}/{}", folder, name);
            // Virtual devices (loop devices, bridges) have no parent device.
            if (machine.exists(path + "/device")) neighbours.push_back({kind, name, node_of(machine, path)});
        }
    };
    add("disk", "/sys/block");
    add("nic", "/sys/class/infiniband");
    add("nic", "/sys/class/net");
    return neighbours;
}

std::string name_of(const PciGpu& gpu, const LocalGpus& local) {
    for (const auto& device : local.gpus)
        if (!gpu.uuid.empty() && gpu.uuid == device.uuid) return fmt::format("{} ({})", device.name, gpu.address);
    return gpu.address;
}

Finding find_distances(const std::string& gpu, int node, const std::vector<Neighbour>& neighbours,
                       const Distances& distances) {
    Finding finding{.check = "numa"};
    std::vector<std::string> texts;
    std::vector<Record> records;
    std::map<std::string, int> nearest;
    for (const auto& neighbour : neighbours) {
        const auto found = distances.find({node, neighbour.node});
        const int distance = found == distances.end() ? -1 : found->second;
        texts.push_back(distance < 0 ? fmt::format("{} unknown", neighbour.name)
                                     : fmt::format("{} {}", neighbour.name, distance));
        Record record;
        record.add("kind", neighbour.kind)
            .add("name", neighbour.name)
            .add("node", neighbour.node)
            .add("distance", distance);
        records.push_back(std::move(record));
        if (distance < 0) continue;
        const auto [entry, added] = nearest.try_emplace(neighbour.kind, distance);
        if (!added) entry->second = std::min(entry->second, distance);
    }
    finding.found = fmt::format("{} on node {}, distances: {}", gpu, node,
                                texts.empty() ? "no disk or network card" : fmt::format("{}", fmt::join(texts, ", ")));
    finding.details.emplace();
    finding.details->add("gpu", gpu).add("node", node).add("neighbours", std::move(records));
    for (const auto& [kind, distance] : nearest) {
        if (distance <= kHere) continue;
        finding.health = Health::warning;
        finding.remedy =
            fmt::format("it has no {} on its own node: transfers cross the link between processors; put one into "
                        "a slot of node {}, or use a GPU of the other node",
                        kind == "disk" ? "disk" : "network card", node);
    }
    return finding;
}

}  // namespace

void check_numa(const Machine& machine, const LocalGpus& local, Findings& ret_findings) {
    auto neighbours = list_neighbours(machine);
    const auto distances = read_distances(machine);
    const bool one_node = distances.size() <= 1;
    // On a machine with one node, devices often report -1.
    const auto known = [&](int node) {
        return node < 0 && one_node && !distances.empty() ? distances.begin()->first.first : node;
    };
    for (auto& neighbour : neighbours) neighbour.node = known(neighbour.node);
    for (const auto& gpu : list_pci_gpus(machine)) {
        const int node = known(node_of(machine, "/sys/bus/pci/devices/" + gpu.address));
        if (node >= 0) {
            ret_findings.push_back(find_distances(name_of(gpu, local), node, neighbours, distances));
            continue;
        }
        ret_findings.push_back(
            {.check = "numa",
             .health = Health::warning,
             .found = fmt::format("{}: the firmware does not say on which node it is", name_of(gpu, local)),
             .remedy = "a virtual machine needs a NUMA layout like the real one's to know"});
    }
}

}  // namespace gshm::cli

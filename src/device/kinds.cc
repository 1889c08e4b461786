#include "device/kinds.h"

#include "device/cuda.h"
#include "device/host.h"

namespace gshm::core {
namespace {

// The only place that names the kinds.
std::vector<const DeviceKind*>& kinds() {
    static std::vector<const DeviceKind*> list = {&kCudaKind, &kHostKind};
    return list;
}

}  // namespace

std::span<const DeviceKind* const> device_kinds() {
    return kinds();
}

const DeviceKind* find_device_kind(std::string_view spec) {
    std::string_view name = spec.substr(0, spec.find(':'));
    for (const DeviceKind* kind : kinds()) {
        if (kind->name == name) return kind;
    }
    return nullptr;
}

std::string device_spec_examples() {
    std::string text;
    for (const DeviceKind* kind : kinds()) text += (text.empty() ? "" : ", ") + std::string(kind->examples);
    return text;
}

void add_device_kind(const DeviceKind& kind) {
    kinds().push_back(&kind);
}

}  // namespace gshm::core

// The kinds of devices. gshmd and libgshm find devices through this list and know no kind by name: a new one is a
// Device and an entry here. docs/devices.md has a worked example.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace gshm::core {

struct OpenedDevices {
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Error> left_out;  // reasons why other devices could not be opened
};

struct DeviceKind {
    // Prefix of its specs ("cuda:0:40G") and device names ("cuda:0"), up to a colon.
    const char* name = "";
    const char* examples = "";  // of specs, for help texts
    // Specs select a device: "name:which" or "name:which:LIMIT". Otherwise there is only one, and "name:LIMIT" bounds
    // it.
    bool selects = false;
    // The devices that gshmd uses if none is named.
    enum class Unasked { nothing, what_is_there, everything };
    Unasked unasked = Unasked::nothing;

    // The devices selected by `which`; "": all that this process can find. limit_bytes bounds the use of each; 0: no
    // bound. EINVAL: `which` is invalid for this kind.
    Result<OpenedDevices> (*open)(std::string_view which, uint64_t limit_bytes) = nullptr;
    // A device for imports from another process, if open("") does not find it. Null: it always does, or imports are not
    // possible.
    Result<std::unique_ptr<Device>> (*open_foreign)(std::string_view name, std::string_view uuid) = nullptr;
    // Called before each use of open devices: the reason why they cannot be used now (in a forked child, for example).
    // Null: they always can.
    Status (*check)() = nullptr;
};

// In the default order of gshmd.
std::span<const DeviceKind* const> device_kinds();
// For a spec or a device name; null: no such kind.
const DeviceKind* find_device_kind(std::string_view spec);
// Examples of specs of all kinds, for help texts.
std::string device_spec_examples();
// Adds a kind, for the lifetime of the process. For kinds that are not built with gshm: during static initialisation,
// or before any of the functions above is called.
void add_device_kind(const DeviceKind& kind);

}  // namespace gshm::core

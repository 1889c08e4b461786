// The kinds of devices there are. gshmd and libgshm find devices through this list and know no kind by name: a new one
// is a Device and an entry here. docs/devices.md has a worked example.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace gshm {

struct OpenedDevices {
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Error> left_out;  // why others that are there could not be opened
};

struct DeviceKind {
    // What its specs ("cuda:0:40G") and its devices' names ("cuda:0") begin with, up to a colon.
    const char* name = "";
    const char* examples = "";  // of specs, for people
    // Specs say which: "name:which" or "name:which:LIMIT"; else there is but one, and "name:LIMIT" bounds it.
    bool selects = false;
    // What gshmd has of it when no device is named at all.
    enum class Unasked { nothing, what_is_there, everything };
    Unasked unasked = Unasked::nothing;

    // The devices that `which` stands for; "": all that this process can find by itself. limit_bytes is a bound of what
    // will be used of each, 0: none. EINVAL: nothing of this kind can be meant by `which`.
    Result<OpenedDevices> (*open)(std::string_view which, uint64_t limit_bytes) = nullptr;
    // For a process that imports what another's device has exported, where open("") does not find that device. Null:
    // it always does, or the device cannot be used from here.
    Result<std::unique_ptr<Device>> (*open_foreign)(std::string_view name, std::string_view uuid) = nullptr;
    // Asked before each use of devices that were opened earlier: why they cannot be used now (in a forked child, say).
    // Null: they always can.
    Status (*check)() = nullptr;
};

// In the order in which gshmd has them unasked.
std::span<const DeviceKind* const> device_kinds();
// Of a spec or of a device's name; null: there is no such kind.
const DeviceKind* find_device_kind(std::string_view spec);
// Examples of specs of all kinds, for people.
std::string device_spec_examples();
// One more, for the life of the process. For kinds that are not built with gshm: while static objects are made, or else
// before any of the functions above is called.
void add_device_kind(const DeviceKind& kind);

}  // namespace gshm

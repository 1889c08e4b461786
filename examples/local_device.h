// Selects a device of this process for an example without a daemon.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>

#include <gshm/gshm.hpp>

inline bool is_cuda(const gshm::DeviceInfo& device) {
    return std::string_view(device.name).starts_with("cuda:");
}

// Returns the device named `wanted`; if that is empty, the first working CUDA device, else host memory. Throws
// gshm::Exception if there is no such device.
inline gshm::DeviceInfo choose_device(const std::string& wanted) {
    const auto devices = gshm::local_devices().value();
    std::string names;
    const gshm::DeviceInfo* host = nullptr;
    for (const auto& device : devices) {
        if (wanted.empty() ? is_cuda(device) && !device.failed : device.name == wanted) return device;
        if (std::string_view(device.name) == "host") host = &device;
        names += std::string(names.empty() ? "" : ", ") + device.name;
    }
    if (wanted.empty() && host) return *host;
    throw gshm::Exception({ENODEV, "there is no device \"" + wanted + "\" here; there are: " + names});
}

inline void print_device(const gshm::DeviceInfo& device) {
    if (is_cuda(device)) {
        std::printf("Using CUDA device %s: %s\n", device.name + std::string_view("cuda:").size(), device.model);
    } else {
        std::printf("Using host memory\n");
    }
}

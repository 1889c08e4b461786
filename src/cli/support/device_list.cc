#include "cli/support/device_list.h"

namespace gshm::cli {

std::vector<gshm_device_info> list_devices(Context& context) {
    std::vector<gshm_device_info> devices(16, sized<gshm_device_info>());
    for (;;) {
        size_t count = 0;
        check(gshm_devices(context.client(), devices.data(), devices.size(), &count), {});
        const bool complete = count <= devices.size();
        devices.resize(count, sized<gshm_device_info>());
        if (complete) return devices;
    }
}

std::string device_state_text(const gshm_device_info& device) {
    if (!device.failed) return "ok";
    return device.failure[0] ? std::string("failed: ") + device.failure : "failed";
}

}  // namespace gshm::cli

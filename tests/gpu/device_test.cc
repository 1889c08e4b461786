// The device suite over every GPU of this machine.
#include "conformance/device_suite.h"
#include "device/cuda.h"
#include "gpu.h"

namespace gshm::core::test {
namespace {

std::vector<DeviceCase> gpu_cases() {
    std::string why;
    const auto names = gpu_names(&why);
    std::vector<DeviceCase> cases;
    for (size_t i = 0; i < names.size(); ++i) {
        cases.push_back({"cuda" + std::to_string(i), [i]() -> Result<std::unique_ptr<Device>> {
                             return TRY(CudaDevice::create(static_cast<int>(i)));
                         }});
    }
    if (cases.empty()) {
        cases.push_back({"none", [why]() -> Result<std::unique_ptr<Device>> { return fail(ENODEV, "{}", why); }});
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(Gpus, DeviceSuite, ::testing::ValuesIn(gpu_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gshm::core::test

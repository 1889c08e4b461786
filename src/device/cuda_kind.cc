// Naming and discovery of GPUs.
#include <charconv>

#include "device/cuda.h"

namespace gshm::core {
namespace {

std::optional<int> parse_ordinal(std::string_view text) {
    int ordinal = -1;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
    if (error != std::errc() || end != text.data() + text.size() || ordinal < 0) return std::nullopt;
    return ordinal;
}

Result<OpenedDevices> open_gpus(std::string_view which, uint64_t) {
    OpenedDevices opened;
    if (!which.empty()) {
        auto ordinal = parse_ordinal(which);
        if (!ordinal) return fail(EINVAL, "\"{}\" is not the number of a GPU", which);
        opened.devices.push_back(TRY(CudaDevice::create(*ordinal)));
        return opened;
    }
    int count = TRY(CudaDevice::count());
    if (count == 0) return fail(ENODEV, "the CUDA driver sees no GPU");
    // A GPU that cannot be queried must not hide the others.
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        auto gpu = CudaDevice::create(ordinal);
        if (gpu) opened.devices.push_back(std::move(*gpu));
        else opened.left_out.push_back(gpu.error());
    }
    return opened;
}

}  // namespace

const DeviceKind kCudaKind = {
    .name = "cuda",
    .examples = "cuda, cuda:0, cuda:0:40G",
    .selects = true,
    .unasked = DeviceKind::Unasked::what_is_there,
    .open = open_gpus,
    // A forked child must not use its parent's driver.
    .check = []() -> Status {
        TRY(cuda::Driver::get());
        return {};
    },
};

}  // namespace gshm::core

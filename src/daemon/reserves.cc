#include "daemon/reserves.h"

#include <sstream>

#include "base/log.h"
#include "base/size.h"

namespace gshm::core {

uint64_t Reserves::bytes_of(DeviceIndex device, const Reserve& reserve) const {
    return reserve.percent == 0 ? reserve.bytes : devices_.memory_bytes(device) / 100 * reserve.percent;
}

// The salvage of a catalog copies these values by their prefix.
std::string Reserves::key(DeviceIndex device) const {
    return std::string(Survival::kReserves) + devices_.info(device).name;
}

void Reserves::load() {
    for (DeviceIndex i = 0; i < devices_.size(); ++i) {
        std::istringstream text(survival_.setting(key(i)));
        Reserve reserve;
        if (!(text >> reserve.bytes >> reserve.percent)) continue;
        if (auto set = this->set(i, reserve); !set) log_error("{}", set.error().message);
    }
}

Status Reserves::set(DeviceIndex device, const Reserve& reserve) {
    const DeviceInfo& info = devices_.info(device);
    if (!info.knows_free_bytes && (reserve.bytes != 0 || reserve.percent != 0)) {
        return fail(EOPNOTSUPP,
                    "{} has no reserve, since it does not know how much memory other programs have left free; start "
                    "gshmd with `--device {}:SIZE` to bound what gshm takes",
                    info.name, info.name);
    }
    if (reserve.percent > kMostPercent) return fail(EINVAL, "a reserve is at most {}% of a device", kMostPercent);
    const uint64_t bytes = bytes_of(device, reserve);
    const uint64_t most = devices_.memory_bytes(device) / 100 * kMostPercent;
    if (bytes > most) {
        return fail(EINVAL, "a reserve of {} is more than {}% of {}, which has {}", size_text(bytes), kMostPercent,
                    info.name, size_text(devices_.memory_bytes(device)));
    }
    TRY(survival_.set_setting(key(device), fmt::format("{} {}", reserve.bytes, reserve.percent)));
    if (reserves_.size() <= device) reserves_.resize(device + 1);
    reserves_[device] = reserve;
    devices_.set_reserve(device, bytes);
    return {};
}

Reserves::Reserve Reserves::of(DeviceIndex device) const {
    return device < reserves_.size() ? reserves_[device] : Reserve{};
}

}  // namespace gshm::core

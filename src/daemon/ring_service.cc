#include "daemon/ring_service.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "base/log.h"
#include "daemon/server.h"

namespace gshm {
namespace {

// An engine's thread copies nothing itself, so that few do.
size_t engines_per_user() {
    return std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u);
}

}  // namespace

RingService::RingService(Server& server, uint64_t staging_bytes) : server_(server), staging_bytes_(staging_bytes) {}

RingService::~RingService() = default;

void RingService::start() {
    // One pins it for all GPUs. Others need it as well, but any will do.
    DevicePool& devices = server_.devices();
    std::optional<DeviceIndex> chosen;
    for (DeviceIndex i = 0; i < devices.size(); ++i) {
        if (devices.info(i).uuid.empty() || !devices.check(i)) continue;
        if (!chosen || (devices.info(i).pins && !devices.info(*chosen).pins)) chosen = i;
    }
    if (!chosen) {
        promise_->set_value(nullptr);
        return;
    }
    devices.submit(
        *chosen,
        [promise = promise_, bytes = staging_bytes_](Device& device) -> Status {
            auto staging = io::Staging::create(device, bytes);
            promise->set_value(staging ? *staging : nullptr);
            if (!staging) log_warning("no staging memory for file transfers: {}", staging.error().message);
            return {};
        },
        nullptr);
}

Result<std::shared_ptr<io::Engine>> RingService::User::engine() {
    auto least = std::ranges::min_element(engines_, {}, [](const auto& engine) { return engine.use_count(); });
    const bool is_free = least != engines_.end() && least->use_count() == 1;
    if (is_free || engines_.size() >= engines_per_user()) return *least;
    engines_.push_back(TRY(io::Engine::create(service_.staging_.get(), {})));
    return engines_.back();
}

RingService::User& RingService::user(uid_t uid) {
    auto& user = users_[uid];
    if (!user) user.reset(new User(*this));
    return *user;
}

}  // namespace gshm

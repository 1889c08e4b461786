#include "daemon/ring_service.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "daemon/server.h"

namespace gshm::core {
namespace {

// An engine's thread copies no bytes itself, so few engines are enough.
size_t engines_per_user() {
    return std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u);
}

}  // namespace

RingService::RingService(Server& server, uint64_t staging_bytes) : server_(server), staging_bytes_(staging_bytes) {}

RingService::~RingService() = default;

std::shared_future<RingService::SharedStaging> RingService::staging() {
    if (!staging_.valid()) make_staging();
    if (staging_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return staging_;
    const SharedStaging memory = staging_.get();
    if (memory == nullptr) make_staging();
    else if (!memory->is_pinned()) pin_staging(memory);
    return staging_;
}

void RingService::make_staging() {
    auto promise = std::make_shared<std::promise<SharedStaging>>();
    staging_ = promise->get_future().share();
    // One GPU that pins memory pins it for all GPUs. Without such a GPU, any GPU is chosen.
    DeviceSet& devices = server_.devices();
    std::optional<DeviceIndex> chosen;
    for (DeviceIndex i = 0; i < devices.size(); ++i) {
        if (devices.info(i).uuid.empty() || !devices.check(i)) continue;
        if (!chosen || (devices.info(i).pins && !devices.info(*chosen).pins)) chosen = i;
    }
    if (!chosen) {
        promise->set_value(nullptr);
        return;
    }
    staging_device_ = *chosen;
    devices.submit(
        *chosen,
        [promise, bytes = staging_bytes_, warns = !std::exchange(has_warned_, true)](Device& device) -> Status {
            auto staging = io::Staging::create(device, bytes);
            promise->set_value(staging ? *staging : nullptr);
            if (staging) return {};
            const auto& why = staging.error().message;
            if (warns) log_warning("no files into GPUs' memory until there is memory to stage them: {}", why);
            else log_debug("still no staging memory: {}", why);
            return {};
        },
        nullptr);
}

// Pins in the background; no caller waits.
void RingService::pin_staging(const SharedStaging& staging) {
    if (std::exchange(is_pinning_, true)) return;
    server_.devices().submit(
        staging_device_,
        [staging](Device&) -> Status {
            auto pinned = staging->pin();
            if (pinned) log_info("the staging memory is pinned after all");
            else log_debug("the staging memory still cannot be pinned: {}", pinned.error().message);
            return {};
        },
        [this](const Status&) {
            store_lock.assert_held();
            is_pinning_ = false;
        });
}

Result<std::shared_ptr<io::Engine>> RingService::User::engine(const SharedStaging& staging,
                                                              const std::optional<FileRights>& rights) {
    // The engines without staging memory are replaced. Rings keep the engine that they have.
    if (staging != nullptr && !std::exchange(have_staging_, true)) engines_.clear();
    std::erase_if(engines_, [&](const Served& one) { return one.rights != rights && one.engine.use_count() == 1; });
    std::vector<std::shared_ptr<io::Engine>*> same;
    for (auto& one : engines_) {
        if (one.rights == rights) same.push_back(&one.engine);
    }
    auto least = std::ranges::min_element(same, {}, [](const auto* engine) { return engine->use_count(); });
    const bool is_free = least != same.end() && (*least)->use_count() == 1;
    if (is_free || same.size() >= engines_per_user()) return **least;
    // Many threads that copy in turns would each have the same claim to a processor as a thread that answers requests.
    constexpr int kNice = 5;
    io::Engine::Options options{.staging_user = uint64_t{uid_} + 1, .rights = rights, .nice = rights ? kNice : 0};
    // More threads than processors copy no faster.
    options.threads = std::clamp(std::thread::hardware_concurrency(), 2u, options.threads);
    auto made = TRY(io::Engine::create(staging, options));
    engines_.push_back({rights, std::move(made)});
    return engines_.back().engine;
}

std::optional<FileRights> RingService::rights_of(const Credentials& client) {
    if (geteuid() != 0 || client.is_root()) return std::nullopt;
    return FileRights{client.uid, client.gid, client.groups};
}

RingService::User& RingService::user(uid_t uid) {
    auto& user = users_[uid];
    if (!user) user.reset(new User(uid, server_.reapers()));
    return *user;
}

}  // namespace gshm::core

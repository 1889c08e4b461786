// Server: the configuration, which may change while gshmd runs.
#include <algorithm>

#include "base/log.h"
#include "daemon/server.h"

namespace gshm::core {

void Server::set_device_limits(const std::vector<std::string>& specs, uint64_t limit_bytes) {
    devices_->set_limits(specs, limit_bytes);
    for (DeviceIndex i = 0; i < devices_->size(); ++i) store_.set_capacity(i, devices_->info(i).capacity_bytes);
}

void Server::reload(std::string asker, std::move_only_function<void(Reloaded)> done) {
    // The file may be on a slow disk.
    reloader_->submit([this, asker = std::move(asker), done = std::move(done)]() mutable {
        StoreLock lock(loop_.store_mutex());
        const Configuration present = *configuration_;
        lock.unlock();
        auto next = present.read_again();
        loop_.post([this, next = std::move(next), asker = std::move(asker), done = std::move(done)]() mutable {
            store_lock.assert_held();
            done(take_configuration(std::move(next), asker));
        });
    });
}

Server::Reloaded Server::take_configuration(Result<Configuration> next, const std::string& asker) {
    if (!next) {
        log_error("reload by {}: nothing changes, since the configuration is wrong: {}", asker, next.error().message);
        return fail(EBADMSG, "{}", next.error().message);
    }
    auto changes = configuration_->changes(*next);
    for (const Option* option : configuration_->take(*next)) option->apply(*this, configuration_->options());
    if (changes.empty()) log_info("reload by {}: nothing has changed", asker);
    for (const auto& change : changes) {
        log_info("reload by {}: {}: {} -> {}{}", asker, change.key, change.former, change.value,
                 change.needs_restart ? ", needs a restart" : "");
    }
    return changes;
}

}  // namespace gshm::core

// Server: the mount.
#include <cstdlib>
#include <sys/random.h>

#include "base/log.h"
#include "daemon/server.h"

namespace gshm::core {
namespace {

constexpr std::string_view kGeneration = "generation";  // a setting

}  // namespace

std::function<void()> Server::on_unmounted() {
    // After any unmount, by gshmd or by another process, the daemon goes on without a mount.
    return [this] {
        loop_.post([this] {
            store_lock.assert_held();
            survival_.drop_mount();
            survival_.note_mount("");
            if (auto set = survival_.set_setting("mountpoint", ""); !set) log_error("{}", set.error().message);
            janitor_->submit([mount = std::move(mount_)]() mutable { mount.reset(); });
        });
    };
}

// Handles of files (name_to_handle_at(2)) contain the generation. They are valid as long as the store exists. A salvage
// does not keep the setting, since ids may belong to other nodes afterwards.
Result<uint32_t> Server::mount_generation() {
    if (const std::string known = survival_.setting(kGeneration); !known.empty()) {
        return static_cast<uint32_t>(std::strtoul(known.c_str(), nullptr, 10));
    }
    uint32_t made = 0;
    while (made == 0) {
        if (getrandom(&made, sizeof made, 0) != sizeof made) made = static_cast<uint32_t>(survival_.instance()) | 1;
    }
    TRY(survival_.set_setting(kGeneration, std::to_string(made)));
    return made;
}

Status Server::mount(const std::string& path, MountSettings settings) {
    settings.generation = TRY(mount_generation());
    mount_backend_ = std::make_unique<MountBackend>(*this, std::move(settings));
    mount_ = TRY(fuse::Mount::create(*mount_backend_, path, on_unmounted()));
    return keep_mount();
}

Status Server::resume_mount(const std::string& path, UniqueFd fd, MountSettings settings) {
    const std::string setting = survival_.setting("passthrough");
    const bool passthrough = setting.starts_with("1");
    auto read_done = [&] {
        StoreLock lock(loop_.store_mutex());
        return survival_.done();
    };
    auto done = TRY(read_done());
    // None: an earlier gshmd gave the kernel nodes without one, and the kernel drops an inode whose generation changes.
    settings.generation = static_cast<uint32_t>(std::strtoul(survival_.setting(kGeneration).c_str(), nullptr, 10));
    mount_backend_ = std::make_unique<MountBackend>(*this, std::move(settings));
    mount_ =
        TRY(fuse::Mount::resume(*mount_backend_, path, std::move(fd), passthrough, std::move(done), on_unmounted()));
    // Not fatal: the earlier daemon has already recorded the mountpoint.
    if (auto kept = keep_mount(); !kept) log_warning("{}", kept.error().message);
    return {};
}

Status Server::keep_mount() {
    StoreLock lock(loop_.store_mutex());
    survival_.note_mount(mount_->note());
    // Recorded also for a mount that cannot be resumed: the next daemon then mounts anew. Recorded before the keeper
    // gets the mount: the next daemon could not resume a mount without its path, and its processes would wait for ever.
    TRY(survival_.set_setting("mountpoint", mount_->path()));
    TRY(survival_.set_setting("passthrough", mount_->has_passthrough() ? "1" : "0"));
    if (mount_->can_be_resumed()) survival_.keep_mount(mount_->fd());
    return {};
}

void Server::unmount(bool lazily, std::move_only_function<void(Status)> done) {
    if (!mount_) return done(fail(EINVAL, "nothing is mounted"));
    janitor_->submit([this, mount = mount_, lazily, done = std::move(done)]() mutable {
        Status status = mount->unmount(lazily);
        mount.reset();  // the last reference must not go in the loop, which would wait for the mount's threads
        loop_.post([status = std::move(status), done = std::move(done)]() mutable { done(std::move(status)); });
    });
}

}  // namespace gshm::core

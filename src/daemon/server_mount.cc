// Server: the mount. One file system, which can be mounted at several places.
#include <cstdlib>
#include <fcntl.h>
#include <future>
#include <sys/epoll.h>
#include <sys/random.h>

#include "base/log.h"
#include "daemon/server.h"

namespace gshm::core {
namespace {

// Settings.
constexpr std::string_view kGeneration = "generation";
constexpr std::string_view kMountpoint = "mountpoint";  // the first one, for a gshmd that had only one
constexpr std::string_view kMounts = "mounts";
constexpr std::string_view kMountDevice = "mount device";
constexpr std::string_view kPassthrough = "passthrough";
constexpr std::string_view kAcls = "mount with ACLs";  // none: of an earlier gshmd, without

}  // namespace

std::vector<MountRecord> earlier_mounts(const Survival& survival) {
    auto records = parse_mounts(survival.setting(kMounts));
    const std::string first = survival.setting(kMountpoint);
    if (records.empty() && !first.empty()) records.push_back({first});
    if (!records.empty() || !survival.is_salvaging()) return records;
    for (const auto& note : survival.noted_mounts()) {
        if (auto noted = fuse::MountPoint::from_note(note)) records.push_back({noted->path(), noted->options()});
    }
    return records;
}

std::function<void()> Server::on_unmounted() {
    // After any unmount, by gshmd or by another process, the daemon goes on without a mount.
    return [this, number = ++mount_number_] {
        loop_.post([this, number] {
            store_lock.assert_held();
            if (number != mount_number_ || !mount_) return;  // another one is there already
            forget_mount();
            janitor_->submit([mount = std::move(mount_)]() mutable { mount.reset(); });
        });
    };
}

void Server::forget_mount() {
    mounts_.clear();
    survival_.drop_mount();
    survival_.note_mounts({});
    for (auto key : {kMountpoint, kMounts}) {
        if (auto set = survival_.set_setting(key, ""); !set) log_error("{}", set.error().message);
    }
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

std::shared_ptr<fuse::Mount> Server::find_mount() {
    std::shared_ptr<fuse::Mount> ended;  // destroyed without the lock, which its threads need
    StoreLock lock(loop_.store_mutex());
    if (mount_ && fuse::Mount::has_ended(mount_->fd())) {
        forget_mount();
        ended = std::move(mount_);
    }
    auto found = mount_;
    lock.unlock();
    return found;
}

Status Server::mount(const MountRecord& record) {
    if (auto present = find_mount()) {
        TRY(present->add(record.path, record.options));
    } else {
        auto make_backend = [&]() -> Status {
            StoreLock lock(loop_.store_mutex());
            mount_settings_.generation = TRY(mount_generation());
            mount_backend_ = std::make_unique<MountBackend>(*this, mount_settings_);
            return {};
        };
        TRY(make_backend());
        use_mount(TRY(fuse::Mount::create(*mount_backend_, record.path, record.options, on_unmounted())));
    }
    return keep_mount();
}

void Server::mount(MountRecord record, std::move_only_function<void(Status)> done) {
    janitor_->submit([this, record = std::move(record), done = std::move(done)]() mutable {
        auto refuse = [&](Error error) {
            loop_.post([error = std::move(error), done = std::move(done)]() mutable { done(std::unexpected(error)); });
        };
        if (refuses_mounts_) return refuse({ESHUTDOWN, "gshmd is ending"});
        // An ended mount is destroyed by the next task of this thread.
        if (!find_mount() && !last_mount_.expired()) {
            return janitor_->submit([this, record = std::move(record), done = std::move(done)]() mutable {
                StoreLock lock(loop_.store_mutex());
                mount(std::move(record), std::move(done));
            });
        }
        auto status = mount(record);
        if (!status) return refuse(status.error());
        loop_.post([done = std::move(done)]() mutable { done({}); });
    });
}

void Server::use_mount(std::unique_ptr<fuse::Mount> mount) {
    StoreLock lock(loop_.store_mutex());
    mount_ = std::move(mount);
    last_mount_ = mount_;
    watch_mounts();
}

Status Server::resume_mount(const std::string& path, UniqueFd fd) {
    const fuse::FileSystem::Features features{survival_.setting(kPassthrough).starts_with("1"),
                                              survival_.setting(kAcls).starts_with("1")};
    auto read_done = [&] {
        StoreLock lock(loop_.store_mutex());
        return survival_.done();
    };
    auto done = TRY(read_done());
    // None: an earlier gshmd gave the kernel nodes without one, and the kernel drops an inode whose generation changes.
    mount_settings_.generation =
        static_cast<uint32_t>(std::strtoul(survival_.setting(kGeneration).c_str(), nullptr, 10));
    mount_backend_ = std::make_unique<MountBackend>(*this, mount_settings_);
    use_mount(TRY(fuse::Mount::resume(*mount_backend_, path, survival_.setting(kMountDevice), std::move(fd), features,
                                      std::move(done), on_unmounted())));
    // Not fatal: the earlier daemon has already recorded the mountpoint.
    if (auto kept = keep_mount(); !kept) log_warning("{}", kept.error().message);
    return {};
}

Status Server::keep_mount() {
    StoreLock lock(loop_.store_mutex());
    if (!mount_) return {};
    auto mount = mount_;
    lock.unlock();
    const auto points = mount->points();  // reads the mount table
    lock.lock();
    if (mount != mount_) return {};
    mounts_ = records_of(points);
    if (mount_->can_be_resumed()) {
        // Recorded before the keeper gets the mount: the next daemon could not resume a mount without its path, and its
        // processes would wait for ever. See below.
        TRY(survival_.set_setting(kMountDevice, mount_->device()));
    }
    // A mount that was detached, but has open files, stays recorded: the next daemon serves it.
    if (!points.empty()) {
        std::vector<std::string> notes;
        for (const auto& point : points) notes.push_back(point.note());
        survival_.note_mounts(notes);
        // Recorded also for a mount that cannot be resumed: the next daemon then mounts anew.
        TRY(survival_.set_setting(kMountpoint, points[0].path()));
        TRY(survival_.set_setting(kMounts, mounts_text(mounts_)));
    }
    TRY(survival_.set_setting(kPassthrough, mount_->features().passthrough ? "1" : "0"));
    TRY(survival_.set_setting(kAcls, mount_->features().acls ? "1" : "0"));
    if (mount_->can_be_resumed()) survival_.keep_mount(mount_->fd());
    return {};
}

// Other processes mount and unmount it as well: umount(8), mount --bind.
void Server::watch_mounts() {
    if (mount_table_) return;
    mount_table_ = UniqueFd::adopt(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
    if (!mount_table_) return;
    auto watched = loop_.watch(mount_table_.get(), EPOLLPRI, [this](uint32_t) {
        if (mounts_changed_.exchange(true)) return;
        janitor_->submit([this] {
            mounts_changed_ = false;
            refresh_mounts();
        });
    });
    if (!watched) log_warning("unmounts by others are not noticed: {}", watched.error().message);
}

void Server::refresh_mounts() {
    auto mount = find_mount();
    if (!mount) return;
    const auto now = records_of(mount->points());
    mount.reset();
    {
        StoreLock lock(loop_.store_mutex());
        if (now == mounts_) return;
    }
    if (auto kept = keep_mount(); !kept) log_error("{}", kept.error().message);
}

void Server::unmount(std::string path, bool lazily, std::move_only_function<void(Status)> done) {
    if (!mount_) return done(fail(EINVAL, "nothing is mounted"));
    janitor_->submit([this, mount = mount_, path = std::move(path), lazily, done = std::move(done)]() mutable {
        Status status = mount->unmount(path, lazily);
        mount.reset();  // the last reference must not go in the loop, which would wait for the mount's threads
        if (status) refresh_mounts();
        loop_.post([status = std::move(status), done = std::move(done)]() mutable { done(std::move(status)); });
    });
}

void Server::finish_mounting() {
    refuses_mounts_ = true;
    std::promise<void> finished;
    janitor_->submit([&] { finished.set_value(); });
    finished.get_future().wait();
}

}  // namespace gshm::core

#include "daemon/survival.h"

#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/process.h"
#include "device/host.h"
#include "device/unavailable.h"

namespace gshm {
namespace {

// Of address space; the file grows as it is needed. Four million leases and open files.
constexpr uint64_t kLedgerBytes = uint64_t{256} << 20;

uint64_t random_instance() {
    uint64_t value = 0;
    while (value == 0) {
        if (getrandom(&value, sizeof value, 0) != sizeof value) value = static_cast<uint64_t>(SystemClock().now_ns());
    }
    return value;
}

}  // namespace

Result<std::unique_ptr<Survival>> Survival::create(EventLoop& loop, const std::string& dir, KeeperKind kind,
                                                   Earlier earlier) {
    std::unique_ptr<Survival> made(new Survival(dir));
    auto* self = made.get();
    self->kind_ = kind;
    std::getline(std::ifstream(self->mount_note_path()), self->noted_mount_, '\0');
    if (kind != KeeperKind::process && TRY(holds_something(dir))) {
        if (earlier != Earlier::begin) {
            return fail(EBUSY, "gshm-keeper still has what an earlier gshmd has left: start without --keeper to take it up, "
                        "or with --discard to give it up");
        }
        stop_keeper(dir);
    }
    if (kind == KeeperKind::none) {
        self->remove_files();
        self->instance_ = random_instance();
        return made;
    }
    self->keeper_ = kind == KeeperKind::systemd
                        ? TRY(use_systemd_as_keeper(&self->kept_))
                        : TRY(find_or_start_keeper(loop, dir, [self] { self->put_all(); }, &self->kept_));
    if (earlier == Earlier::begin) {
        TRY(self->begin_anew());
        return made;
    }
    if (self->kept_.instance == 0 && earlier == Earlier::resume) {
        self->keeper_->stop();
        return fail(ENODATA, "the keeper has nothing that could be taken over");
    }
    if (self->kept_.instance == 0) {
        // One that has nothing to keep is not left behind.
        auto begun = self->begin_anew();
        if (!begun) self->discard();
        TRY(std::move(begun));
        return made;
    }
    self->catalog_ = TRY(Catalog::create(self->catalog_path()));
    auto instance = TRY(self->catalog_->value("instance"));
    if (!instance || *instance != std::to_string(self->kept_.instance)) {
        if (earlier == Earlier::resume) return fail(EPROTO, "{} is not the catalog of what the keeper has",
                                                    self->catalog_path());
        log_error("the keeper has memory of which {} does not know: it is given up", self->catalog_path());
        TRY(self->begin_anew());
        return made;
    }
    self->instance_ = self->kept_.instance;
    self->resuming_ = true;
    self->keeper_->resume(self->instance_);
    TRY(self->open_ledger());
    return made;
}

Survival::~Survival() = default;

void Survival::remove_files() {
    for (const auto& file : Catalog::files(catalog_path())) unlink(file.c_str());
    unlink(ledger_path().c_str());
    unlink(mount_note_path().c_str());
}

void Survival::note_mount(const std::string& note) {
    if (note.empty()) unlink(mount_note_path().c_str());
    else if (!(std::ofstream(mount_note_path()) << note << std::flush)) log_warning("cannot write {}", mount_note_path());
}

Status Survival::begin_anew() {
    if (!keeper_) return {};
    resuming_ = false;
    catalog_.reset();
    kept_ = {};
    remove_files();
    instance_ = random_instance();
    keeper_->begin(instance_);
    // It has everybody's names in it; SQLite's other files get the mode of this one.
    auto file = UniqueFd::adopt(open(catalog_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return fail(errno, "cannot make {}: {}", catalog_path(), strerror(errno));
    catalog_ = TRY(Catalog::create(catalog_path()));
    TRY(catalog_->set_value("instance", std::to_string(instance_)));
    return open_ledger();
}

Status Survival::open_ledger() {
    ledger_file_ = UniqueFd::adopt(open(ledger_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat status = {};
    if (!ledger_file_ || fstat(ledger_file_.get(), &status) != 0) {
        return fail(errno, "cannot make {}: {}", ledger_path(), strerror(errno));
    }
    ledger_memory_ = TRY(Mapping::create(ledger_file_.get(), kLedgerBytes, true));
    ledger_ = std::make_unique<Ledger>(
        std::span(ledger_memory_.data(), ledger_memory_.size()), static_cast<uint64_t>(status.st_size),
        [this](uint64_t bytes) -> Status {
            // Room first: to write where there is none would be our end.
            int failed = posix_fallocate(ledger_file_.get(), 0, static_cast<off_t>(bytes));
            if (failed != 0) return fail(failed, "no room in {} to note a lease: {}", dir_, strerror(failed));
            return {};
        });
    return {};
}

Result<std::string> Survival::setting(std::string_view key) {
    if (!catalog_) return std::string();
    return TRY(catalog_->value(key)).value_or(std::string());
}

Status Survival::set_setting(std::string_view key, std::string_view value) {
    if (!catalog_) return {};
    auto set = catalog_->set_value(key, value);
    if (!set) set = catalog_->set_value(key, value);  // a failure that passes is none
    return set;
}

UniqueFd Survival::take(uint64_t key) {
    auto found = kept_.descriptors.find(key);
    if (found == kept_.descriptors.end()) return {};
    UniqueFd fd = std::move(found->second);
    kept_.descriptors.erase(found);
    return fd;
}

Result<std::shared_ptr<Extent>> Survival::take_extent(const Catalog::Kept& kept, DevicePool& devices) {
    UniqueFd fd = take(kept.key);
    if (!fd) return nullptr;
    auto spare = TRY(UniqueFd::clone(fd.get()));
    auto extent = devices.device(kept.device).restore(std::move(fd), kept.size_bytes, {kept.compressible, kept.is_file});
    if (!extent) {
        // What this process lacks says nothing about the memory, which the next one may take up.
        int code = extent.error().code;
        if (code == EMFILE || code == ENFILE || code == ENOMEM) return std::unexpected(extent.error());
        log_error("an extent of {} cannot be reached: {}", devices.info(kept.device).name, extent.error().message);
        devices.report(kept.device, extent.error());
        return std::make_shared<UnavailableExtent>(std::move(spare), kept.size_bytes, extent.error());
    }
    return std::move(*extent);
}

Result<Survival::Sessions> Survival::load(Store& store, DevicePool& devices, bool with_mount) {
    store_ = &store;
    devices_ = &devices;
    if (!keeper_) return Sessions{};
    auto missing = TRY(catalog_->use_devices(devices.infos()));
    if (!missing.empty()) {
        std::string names;
        for (const auto& name : missing) names += (names.empty() ? "" : ", ") + name;
        return fail(ENODEV, "there are objects on {}, which this gshmd was not started with: name it with --device, "
                    "or give all up with `gshmd --discard`", names);
    }
    TRY(store.set_ledger(ledger_.get()));
    Restorer restorer(store);
    TRY(catalog_->load_extents(restorer, [&](const Catalog::Kept& kept) { return take_extent(kept, devices); }));
    TRY(catalog_->load_nodes(restorer));
    store.set_recorder(this);
    auto sessions = restorer.finish(with_mount, [](const auto& process) {
        return process_lives(process.pid, process.started);
    });
    if (!with_mount) TRY(catalog_->forget_done());
    for (auto& [key, fd] : kept_.descriptors) {
        if ((key & kFence) == kFence && store.object(key & ~kFence) != nullptr) {
            fences_.emplace_back(key & ~kFence, std::move(fd));
        }
    }
    std::erase_if(kept_.descriptors, [](const auto& entry) { return !entry.second; });
    // What nobody speaks of was on its way in or out when the daemon went.
    std::vector<uint64_t> unknown;
    for (const auto& [key, fd] : kept_.descriptors) unknown.push_back(key);
    kept_.descriptors.clear();
    keeper_->drop(unknown);
    keep_host_folder();
    TRY(commit());
    return sessions;
}

void Survival::keep_host_folder() {
    if (host_folder_kept_) return;
    if (auto folder = devices_->host_folder()) {
        keeper_->put(kHostFolder, *folder);
        host_folder_kept_ = true;
    }
}

void Survival::keep_mount(int fd) {
    if (!keeper_) return;
    mount_fd_ = fd;
    keeper_->put(kMount, fd);
}

void Survival::drop_mount() {
    if (!keeper_) return;
    mount_fd_ = -1;
    keeper_->drop({&kMount, 1});
    if (auto forgotten = catalog_->forget_done(); !forgotten) log_error("{}", forgotten.error().message);
}

void Survival::keep_fence(NodeId object, int fd) {
    if (!keeper_) return;
    kept_fences_[object] = fd;
    keeper_->put(kFence | object, fd);
}

void Survival::drop_fence(NodeId object) {
    // Once the store is the next daemon's nothing is dropped with it.
    if (!keeper_ || store_ == nullptr || kept_fences_.erase(object) == 0) return;
    const uint64_t key = kFence | object;
    keeper_->drop({&key, 1});
}

void Survival::put_all() {
    if (store_ == nullptr) return;
    host_folder_kept_ = false;
    keep_host_folder();
    if (mount_fd_ >= 0) keeper_->put(kMount, mount_fd_);
    for (auto [object, fd] : kept_fences_) keeper_->put(kFence | object, fd);
    for (StoredExtent* extent : store_->extents().all()) {
        if (auto fd = extent->memory->keepsake()) keeper_->put(extent->key, *fd);
    }
}

void Survival::changed(Node& node) {
    catalog_->changed(node);
    pending_.store(true, std::memory_order_release);
}

void Survival::erased(const Node& node) {
    catalog_->erased(node);
    pending_.store(true, std::memory_order_release);
}

void Survival::changed(StoredExtent& extent) {
    if (!extent.kept) {
        extent.kept = true;
        if (extent.memory->file() != nullptr) keep_host_folder();
        // Before the catalog speaks of it.
        if (auto fd = extent.memory->keepsake()) keeper_->put(extent.key, *fd);
        else log_error("{}; what is in it does not outlive gshmd", fd.error().message);
    }
    catalog_->changed(extent);
    pending_.store(true, std::memory_order_release);
}

void Survival::erased(const StoredExtent& extent) {
    catalog_->erased(extent);
    dropped_.push_back(extent.key);
    pending_.store(true, std::memory_order_release);
}

void Survival::mark_done(uint64_t request, NodeId node, uint64_t answered) {
    if (!catalog_) return;
    catalog_->mark_done(request, node, answered);
    pending_.store(true, std::memory_order_release);
}

Status Survival::commit() {
    if (!is_pending() || !catalog_) return {};
    auto committed = catalog_->commit();
    if (!committed) committed = catalog_->commit();  // a failure that passes is none
    if (!committed) {
        if (!failing_) log_error("{}: nothing can be changed until it can be written", committed.error().message);
        failing_ = true;
        return committed;
    }
    if (failing_) log_info("the catalog can be written again");
    failing_ = false;
    pending_.store(false, std::memory_order_release);
    // Only now: until then the catalog still spoke of them.
    keeper_->drop(dropped_);
    dropped_.clear();
    return {};
}

void Survival::discard() {
    if (keeper_) keeper_->stop();
    close();
    remove_files();
}

void Survival::forget_store() {
    if (store_ != nullptr) {
        store_->set_recorder(nullptr);
        (void)store_->set_ledger(nullptr);
    }
    store_ = nullptr;
    devices_ = nullptr;
}

void Survival::close() {
    forget_store();
    catalog_.reset();
    keeper_.reset();
}

}  // namespace gshm

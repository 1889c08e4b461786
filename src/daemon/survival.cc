#include "daemon/survival.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/former_ledger.h"
#include "daemon/kept_objects.h"
#include "daemon/process.h"
#include "device/host.h"
#include "device/unavailable.h"
#include "fuse/known_nodes.h"
#include "store/account_limits.h"

namespace gshm::core {
namespace {

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
    std::unique_ptr<Survival> made(new Survival(loop, dir));
    auto* self = made.get();
    StoreLock lock(loop.store_mutex());
    self->kind_ = kind;
    std::ifstream notes(self->mount_note_path());
    for (std::string note; std::getline(notes, note, '\0');) self->noted_mounts_.push_back(note);
    if (kind != KeeperKind::process && TRY(holds_something(dir))) {
        if (earlier != Earlier::begin) {
            return fail(EBUSY,
                        "gshm-keeper still has what an earlier gshmd has left: start without --keeper to take it up, "
                        "or with --discard to give it up");
        }
        stop_keeper(dir);
    }
    if (kind == KeeperKind::none) {
        self->remove_files();
        self->instance_ = random_instance();
        return made;
    }
    self->keeper_ = kind == KeeperKind::systemd ? TRY(use_systemd_as_keeper(&self->kept_))
                                                : TRY(find_or_start_keeper(
                                                      loop, dir,
                                                      [self] {
                                                          store_lock.assert_held();
                                                          self->put_all();
                                                      },
                                                      &self->kept_));
    if (earlier == Earlier::begin) {
        TRY(self->begin_anew());
        return made;
    }
    if (self->kept_.instance == 0 && earlier == Earlier::resume) {
        self->keeper_->stop();
        return fail(ENODATA, "the keeper has nothing that could be taken over");
    }
    if (self->kept_.instance == 0) {
        if (access(self->catalog_path().c_str(), F_OK) == 0) {
            log_warning("{} is there, but no keeper has the memory that it speaks of: all of it is lost",
                        self->catalog_path());
        }
        // A keeper without descriptors is not left behind.
        auto begun = self->begin_anew();
        if (!begun) self->discard();
        TRY(std::move(begun));
        return made;
    }
    auto taken = self->take_up(earlier == Earlier::salvage);
    if (!taken) return std::unexpected(self->damaged(taken.error()));
    return made;
}

Status Survival::take_up(bool salvage) {
    const bool has_extents = std::ranges::any_of(
        kept_.descriptors, [](const auto& entry) { return entry.first < kSpecial || entry.first == kHostFolder; });
    UniqueFd memory = take(kLedger);
    if (!memory && access(former_ledger_path(dir_).c_str(), F_OK) == 0) {
        if (salvage && version_in_file(catalog_path()) < kFirstVersionWithSums)
            return fail(EPROTO,
                        "{} was left by an older gshmd, which has nothing to salvage it with: start gshmd without "
                        "--salvage to take it up",
                        dir_);
        if (!salvage) return take_up_former();
    }
    if (!memory && !has_extents) return begin_anew();  // the earlier daemon died during its start
    resuming_ = true;                                  // from here on there is memory to lose
    if (!memory && !salvage) return fail(EUCLEAN, "the keeper has no ledger");
    if (memory) memory_ = TRY(KeptMemory::adopt(std::move(memory)));
    if (memory_ && !memory_->is_ready() && !has_extents) return begin_anew();
    instance_ = kept_.instance;
    keeper_->resume(instance_);
    if (salvage) return begin_salvage();
    if (memory_->salvage() == KeptMemory::Salvage::filled) end_salvage();
    if (memory_->salvage() != KeptMemory::Salvage::none) return fail(EUCLEAN, "a salvage has not come to its end");
    catalog_ = TRY(Catalog::open(catalog_path(), memory_->catalog_sum(), &memory_->journal()));
    if (catalog_->value("instance") != std::to_string(instance_)) {
        return fail(EUCLEAN, "{} is not the catalog of what the keeper has", catalog_path());
    }
    find_extent_notes();
    return {};
}

// Nothing of the earlier state is changed before load() has read all of it: the older gshmd can be started again.
Status Survival::take_up_former() {
    resuming_ = former_ = true;
    instance_ = kept_.instance;
    keeper_->resume(instance_);
    memory_ = TRY(KeptMemory::create());
    memory_->set_ready();
    catalog_ = TRY(Catalog::open(catalog_path(), memory_->catalog_sum(), &memory_->journal()));
    if (catalog_->value("instance") != std::to_string(instance_)) {
        return fail(EUCLEAN, "{} is not the catalog of what the keeper has", catalog_path());
    }
    if (catalog_->migrated_from() >= kFirstVersionWithSums || catalog_->migrated_from() == 0) {
        return fail(EUCLEAN, "the keeper has no ledger");
    }
    return {};
}

// The next ids, which the catalog had.
Status Survival::load_former_numbers() {
    for (auto [key, what] : {std::pair("next_node", Numbered::node), std::pair("next_key", Numbered::extent_key)}) {
        const uint64_t next = std::strtoull(catalog_->value(key).value_or("0").c_str(), nullptr, 10);
        TRY(memory_->ledger().reserve(1));
        memory_->ledger().add(LedgerKind::numbers, static_cast<uint64_t>(what), 0, std::max<uint64_t>(1, next));
    }
    return {};
}

Status Survival::load_former_ledger(const Store& store) {
    TRY(add_former_entries(former_ledger_path(dir_), memory_->ledger(), [&](NodeId node) {
        store_lock.assert_held();
        const Object* object = store.object(node);
        return object == nullptr || object->extent == nullptr ? 0 : object->extent->key;
    }));
    // Before the catalog is committed: after a kill the next daemon has both, or finds version 1 and migrates again.
    keeper_->put(kLedger, memory_->fd());
    return {};
}

Status Survival::check_formats(const std::string& dir) {
    auto kept = TRY(list_kept(dir));
    if (auto memory = kept.descriptors.find(kLedger); memory != kept.descriptors.end()) {
        TRY(KeptMemory::check_format(memory->second.get()));
    }
    return Catalog::check_version(catalog_path(dir));
}

Survival::~Survival() = default;

void Survival::remove_files() {
    for (const auto& file : Catalog::files(catalog_path())) unlink(file.c_str());
    unlink(former_ledger_path(dir_).c_str());
    unlink(mount_note_path().c_str());
    reserve_.remove();
}

void Survival::note_mounts(const std::vector<std::string>& notes) {
    unlink(mount_note_path().c_str());
    if (notes.empty()) return;
    // With a NUL between them: an earlier gshmd, which had one mount, reads the first.
    std::string text;
    for (const auto& note : notes) text += note + '\0';
    text.pop_back();
    // Not by a stream, whose file could be written by others if the umask permits it.
    auto file = UniqueFd::adopt(open(mount_note_path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
        log_warning("cannot write {}", mount_note_path());
    }
}

Status Survival::begin_anew() {
    if (!keeper_) return {};
    resuming_ = false;
    catalog_.reset();
    kept_ = {};
    remove_files();
    instance_ = random_instance();
    keeper_->begin(instance_);
    memory_ = TRY(KeptMemory::create());
    keeper_->put(kLedger, memory_->fd());
    extent_notes_.clear();
    TRY(make_catalog());
    TRY(catalog_->set_value("instance", std::to_string(instance_)));
    memory_->set_ready();
    return {};
}

Status Survival::make_catalog() {
    // Private, since it has the names of all users' objects. SQLite's other files get the same mode.
    auto file = UniqueFd::adopt(open(catalog_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return fail(errno, "cannot make {}: {}", catalog_path(), strerror(errno));
    // During a salvage the journal has rows of the damaged catalog.
    catalog_ =
        TRY(Catalog::create(catalog_path(), &memory_->catalog_sum(), salvaging_ ? nullptr : &memory_->journal()));
    return {};
}

// Records the properties of an extent, which a salvage cannot read from its descriptor.
void Survival::note_extent(const StoredExtent& extent) {
    Ledger& ledger = memory_->ledger();
    if (auto room = ledger.reserve(1); !room) return log_error("{}", room.error().message);
    const uint64_t slab = extent.slab_group == nullptr ? 0 : extent.unmapped ? kUnmappedSlab : 1;
    extent_notes_[extent.key] = ledger.add(LedgerKind::extent, extent.key, extent.memory->size(), 0,
                                           {KeptMemory::device_sum(devices_->info(extent.device)), extent.compressible,
                                            extent.memory->file() != nullptr, slab});
}

void Survival::find_extent_notes() {
    for (Ledger::Slot slot : memory_->ledger().used()) {
        const LedgerEntry& entry = memory_->ledger().entry(slot);
        if (entry.kind() == LedgerKind::extent) extent_notes_[entry.id()] = slot;
    }
}

void Survival::forget_notes(const std::vector<uint64_t>& keys) {
    for (uint64_t key : keys) {
        leaving_.erase(key);
        auto note = extent_notes_.find(key);
        if (note == extent_notes_.end()) continue;
        memory_->ledger().remove(note->second);
        extent_notes_.erase(note);
    }
}

std::string Survival::setting(std::string_view key) const {
    return catalog_ ? catalog_->value(key).value_or("") : std::string();
}

Status Survival::set_setting(std::string_view key, std::string_view value) {
    if (!catalog_) return {};
    auto set = catalog_->set_value(key, value);
    if (!set) set = catalog_->set_value(key, value);  // retried once: a passing failure is not reported
    return set;
}

UniqueFd Survival::take(uint64_t key) {
    auto found = kept_.descriptors.find(key);
    if (found == kept_.descriptors.end()) return {};
    UniqueFd fd = std::move(found->second);
    kept_.descriptors.erase(found);
    return fd;
}

Result<std::shared_ptr<Extent>> Survival::take_extent(const Catalog::Kept& kept, DeviceSet& devices) {
    if (kept.handle) handles_.insert(*kept.handle);
    UniqueFd fd = take(kept.key);
    if (!fd && kept.is_file) {
        auto file = devices.device(kept.device).restore_file(kept.key);
        if (file) return std::move(*file);
        // Other errors are a lack of resources, and no damage: the next daemon may take up the file.
        if (file.error().code != ENOENT) return fail(ENOMEM, "{}", file.error().message);
    }
    if (!fd && kept.kept && !salvaging_) {
        return fail(EUCLEAN, "the keeper does not have the memory of extent {} ({} bytes)", kept.key, kept.size_bytes);
    }
    if (!fd) return nullptr;
    auto spare = TRY(UniqueFd::clone(fd.get()));
    auto extent = devices.device(kept.device)
                      .restore(std::move(fd), kept.size_bytes, {kept.compressible, kept.is_file},
                               kept.handle ? &*kept.handle : nullptr);
    if (!extent) {
        // A lack of resources in this process is no damage: the next daemon may take up the memory.
        int code = extent.error().code;
        if (code == EMFILE || code == ENFILE || code == ENOMEM) return std::unexpected(extent.error());
        log_error("an extent of {} cannot be reached: {}", devices.info(kept.device).name, extent.error().message);
        devices.report(kept.device, extent.error());
        return std::make_shared<UnavailableExtent>(std::move(spare), kept.size_bytes, extent.error());
    }
    return std::move(*extent);
}

Status Survival::start_maker(DeviceSet& devices) {
    if (!keeper_) return {};
    bool wanted = false;
    for (const auto& info : devices.infos()) wanted |= (info.handle_kinds & kHandleFabric) != 0;
    if (!wanted) return {};
    maker_ = TRY(MakerProcess::create(loop_, take(kMaker), [this](int fd) {
        store_lock.assert_held();
        if (keeper_) keeper_->put(kMaker, fd);
    }));
    for (DeviceIndex i = 0; i < devices.size(); ++i) devices.device(i).use_maker(maker_);
    return {};
}

// An earlier daemon may have died between the maker's answer and the commit.
void Survival::release_unused_makes() {
    if (!maker_) return;
    // `handles_` includes those of memory that could not be imported now.
    maker_->release_others(handles_);
    handles_.clear();
}

Result<Survival::Sessions> Survival::load(Store& store, DeviceSet& devices, bool with_mount) {
    store_ = &store;
    budgets_ = &store.budgets();
    devices_ = &devices;
    if (!keeper_) return Sessions{};
    Catalog& source = damaged_ ? *damaged_ : *catalog_;
    auto missing = TRY(source.use_devices(devices.infos()));
    if (!missing.empty()) {
        std::string names;
        for (const auto& name : missing) names += (names.empty() ? "" : ", ") + name;
        return fail(ENODEV,
                    "there are objects on {}, which this gshmd was not started with: name it with --device, "
                    "or give all up with `gshmd --discard`",
                    names);
    }
    if (damaged_) TRY(catalog_->use_devices(devices.infos()));
    if (salvaging_) left_out_ = memory_->ledger().drop_damaged();  // before the store reads its next numbers
    if (former_) TRY(load_former_numbers());
    TRY(store.set_ledger(&memory_->ledger()));
    Restorer restorer(store, salvaging_ ? Restorer::Mode::salvage : Restorer::Mode::strict);
    auto read = [&]() -> Result<Sessions> {
        store_lock.assert_held();
        TRY(source.load_extents(restorer, [&](const Catalog::Kept& kept) {
            store_lock.assert_held();
            return take_extent(kept, devices);
        }));
        // Before the nodes, which find extents without a row by their keys.
        if (salvaging_) TRY(load_salvaged(restorer, devices));
        TRY(source.load_nodes(restorer));
        const int migrated_from = catalog_->migrated_from();
        if (migrated_from != 0 && migrated_from < kFirstVersionWithSums) TRY(restorer.link_and_check());
        if (former_) TRY(load_former_ledger(store));
        // Checked before the first change.
        if (!salvaging_) TRY(catalog_->check());
        if (migrated_from != 0) log_info("the catalog was of version {}", migrated_from);
        TRY(load_limits(source, store));
        unlink(former_ledger_path(dir_).c_str());
        store.set_recorder(this);
        if (salvaging_) store.limits().record_all();
        return restorer.finish(with_mount ? Restorer::Refer(fuse::restore_known) : nullptr,
                               [](const auto& process) { return process_lives(process.pid, process.started); });
    };
    auto sessions = read();
    if (!sessions) return std::unexpected(damaged(sessions.error()));
    if (!with_mount) TRY(catalog_->forget_done());
    for (auto& [key, fd] : kept_.descriptors) {
        if ((key & kFence) == kFence && store.object(key & ~kFence) != nullptr) {
            fences_.emplace_back(key & ~kFence, std::move(fd));
        }
    }
    std::erase_if(kept_.descriptors, [](const auto& entry) { return !entry.second; });
    // Descriptors without a row belong to extents that were being created or freed when the earlier daemon died.
    // Those of a kind that only a newer gshmd knows stay.
    if (!salvaging_) {
        for (const auto& [key, fd] : kept_.descriptors) {
            if (key <= kLedger || (key & kFence) == kFence) dropped_.push_back(key);
        }
        for (const auto& [key, slot] : extent_notes_) {
            if (!restorer.has_extent(key)) dropped_.push_back(key);
        }
    }
    kept_.descriptors.clear();
    // Version 1 had no notes.
    for (const StoredExtent* extent : store.extents().all()) {
        if (!extent_notes_.contains(extent->key)) note_extent(*extent);
    }
    keep_host_folder();
    memory_->use_newest_format();
    name_files();
    note_change();  // so that commit() drops the keys even if there are no other changes
    TRY(commit());
    if (salvaging_) {
        end_salvage();
        catalog_->use_journal(memory_->journal());
        report_salvaged(restorer);
        damaged_.reset();
    }
    keep_space();
    writer_ = std::make_unique<CatalogWriter>([this] { return drain(); });
    writer_->wake();
    release_unused_makes();
    // Files without a row were being created or freed when the earlier daemon died.
    if (!salvaging_) devices.remove_host_files([&](uint64_t key) { return restorer.has_extent(key); });
    return sessions;
}

void Survival::keep_host_folder() {
    if (host_folder_kept_) return;
    if (auto folder = devices_->host_folder()) {
        keeper_->put(kHostFolder, *folder);
        host_folder_kept_ = true;
    }
}

void Survival::name_files() {
    for (StoredExtent* extent : store_->extents().all()) {
        auto* file = extent->memory->file();
        if (file == nullptr || file->held_fd() < 0) continue;
        if (auto named = file->keep(extent->key); named && *named) keeper_->drop({&extent->key, 1});
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
    // After forget_store() the fences belong to the next daemon.
    if (!keeper_ || store_ == nullptr || kept_fences_.erase(object) == 0) return;
    const uint64_t key = kFence | object;
    keeper_->drop({&key, 1});
}

void Survival::put_all() {
    if (memory_) keeper_->put(kLedger, memory_->fd());
    if (store_ == nullptr) return;
    host_folder_kept_ = false;
    keep_host_folder();
    if (mount_fd_ >= 0) keeper_->put(kMount, mount_fd_);
    if (int fd = maker_ ? maker_->socket() : -1; fd >= 0) keeper_->put(kMaker, fd);
    for (auto [object, fd] : kept_fences_) keeper_->put(kFence | object, fd);
    for (StoredExtent* extent : store_->extents().all()) {
        if (auto fd = extent->memory->descriptor_for_keeper(); fd && *fd >= 0) keeper_->put(extent->key, *fd);
    }
    for (const auto& [key, fd] : leaving_) keeper_->put(key, fd.get());
}

void Survival::changed(Node& node) {
    store_lock.assert_held();
    catalog_->changed(node);
    if (kept_objects_ != nullptr) kept_objects_->changed(node);
    note_change();
}

void Survival::erased(const Node& node) {
    store_lock.assert_held();
    catalog_->erased(node);
    if (kept_objects_ != nullptr) kept_objects_->erased(node);
    note_change();
}

void Survival::changed(StoredExtent& extent) {
    store_lock.assert_held();
    if (!extent.kept) {
        extent.kept = true;
        Result<bool> named = false;
        if (auto* file = extent.memory->file()) {
            keep_host_folder();
            named = file->keep(extent.key);
        }
        // Before the commit of its row.
        auto fd = named ? extent.memory->descriptor_for_keeper() : std::unexpected(named.error());
        extent.lost_at_end = !fd;
        if (fd) {
            note_extent(extent);
            if (*fd >= 0) keeper_->put(extent.key, *fd);
        } else {
            log_error("{}; what is in it does not outlive gshmd", fd.error().message);
        }
    }
    catalog_->changed(extent);
    note_change();
}

void Survival::erased(const StoredExtent& extent) {
    store_lock.assert_held();
    catalog_->erased(extent);
    auto fd = extent.memory->descriptor_for_keeper();
    const bool named = fd && *fd < 0;
    (named ? removed_ : dropped_).push_back(extent.key);
    if (fd && !named && extent.kept) {
        if (auto copy = UniqueFd::clone(*fd)) leaving_[extent.key] = std::move(*copy);
    }
    note_change();
}

void Survival::set(std::string_view name, std::string_view value) {
    store_lock.assert_held();
    catalog_->note_value(name, value);
    note_change();
}

Status Survival::load_limits(const Catalog& source, Store& store) {
    for (const auto& [name, value] : source.values(AccountLimits::kValues)) {
        auto restored = store.limits().restore(name, value);
        if (restored) continue;
        if (!salvaging_) return restored;
        log_error("{}", restored.error().message);
    }
    return {};
}

void Survival::mark_done(uint64_t request, NodeId node, uint64_t answered) {
    if (!catalog_) return;
    catalog_->mark_done(request, node, answered);
    note_change();
}

Status Survival::commit() {
    if (!is_pending()) return {};
    if (catalog_) {
        // Rows that cannot be written stay in the journal. No rows are added then, so that it does not fill up.
        if (is_failing()) TRY(drain());
        auto committed = catalog_->commit();
        if (!committed) committed = catalog_->commit();  // retried once: a passing failure is not reported
        if (!committed) {
            if (!failing_.exchange(true))
                log_error("{}: nothing can be changed until it can be written", committed.error().message);
            return committed;
        }
        if (writer_) writer_->wake();
        if (failing_.exchange(false)) log_info("the catalog can be written again");
    }
    pending_ = false;
    if (kept_objects_ != nullptr) kept_objects_->write();
    // After the commit: before it, the catalog still has their rows.
    if (!dropped_.empty()) {
        keeper_->drop(dropped_);
        forget_notes(std::exchange(dropped_, {}));
    }
    if (!removed_.empty()) forget_notes(std::exchange(removed_, {}));
    return {};
}

void Survival::discard() {
    writer_.reset();
    if (keeper_) keeper_->stop();
    close();
    remove_files();
}

void Survival::forget_store() {
    writer_.reset();  // its thread uses the store's budgets
    budgets_ = nullptr;
    if (maker_) maker_->close();
    if (store_ != nullptr) {
        store_->set_recorder(nullptr);
        (void)store_->set_ledger(nullptr);
    }
    store_ = nullptr;
    kept_objects_ = nullptr;
    devices_ = nullptr;
}

void Survival::close() {
    forget_store();
    writer_.reset();
    // If this fails, the next daemon applies the journal.
    if (catalog_) (void)catalog_->drain();
    catalog_.reset();
    // Changes that could not be committed are not made: the next daemon finds the state before them.
    pending_ = false;
    dropped_.clear();
    removed_.clear();
    keeper_.reset();
}

}  // namespace gshm::core

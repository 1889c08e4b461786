// Damaged state of an earlier daemon: the error message, and the salvage of the readable part.
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/survival.h"
#include "device/host_folder.h"

namespace gshm::core {
namespace {

std::string size_text(uint64_t bytes) {
    constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    auto value = static_cast<double>(bytes);
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
    return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace

Error Survival::damaged(Error error) const {
    if (error.code != EUCLEAN && error.code != ENOENT) return error;
    if (former_) {
        return {EUCLEAN,
                fmt::format("what an older gshmd has left in {} cannot be taken up: {}. Nothing has been "
                            "changed, and {}. The gshmd that wrote it may still read it; `gshmd --discard` gives "
                            "all of it up",
                            dir_, error.message, describe_kept())};
    }
    return {EUCLEAN,
            fmt::format("what an earlier gshmd has left in {} is damaged: {}. No memory has been freed, and {}. `gshmd "
                        "--salvage` makes what can be read usable again, with memory that has lost its name in "
                        "lost+found/; `gshmd --discard` gives all of it up",
                        dir_, error.message, describe_kept())};
}

std::string Survival::describe_kept() const {
    const std::string who =
        keeper_ && keeper_->pid() > 0 ? fmt::format("gshm-keeper (pid {})", keeper_->pid()) : "the keeper";
    if (!memory_ || former_) {
        size_t extents = 0;
        for (const auto& [key, fd] : kept_.descriptors) extents += key < kSpecial ? 1 : 0;
        return fmt::format("{} has {} extents", who, extents);
    }
    std::map<uint64_t, std::string> names;
    DeviceInfo host;
    host.name = "host";
    names[KeptMemory::device_sum(host)] = host.name;
    if (devices_ != nullptr) {
        for (const auto& info : devices_->infos()) names[KeptMemory::device_sum(info)] = info.name;
    }
    struct Sum {
        uint64_t extents = 0;
        uint64_t bytes = 0;
    };
    std::map<std::string, Sum> sums;
    Sum all;
    // Files have their current size; the ledger has the size at their creation.
    std::map<uint64_t, uint64_t> sizes;
    for (const auto& [key, fd] : kept_.descriptors) {
        struct stat status = {};
        if (fd && fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode))
            sizes[key] = static_cast<uint64_t>(status.st_size);
    }
    // Files with a name.
    std::optional<int> folder = devices_ != nullptr ? devices_->host_folder() : std::nullopt;
    if (auto kept = kept_.descriptors.find(kHostFolder); kept != kept_.descriptors.end()) folder = kept->second.get();
    for (const auto& [key, slot] : extent_notes_) {
        struct stat status = {};
        if (folder && fstatat(*folder, HostFolder::name_of(key).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
            sizes[key] = static_cast<uint64_t>(status.st_size);
    }
    if (store_ != nullptr) {
        for (const StoredExtent* extent : store_->extents().all()) sizes[extent->key] = extent->memory->size();
    }
    const Ledger& ledger = memory_->ledger();
    for (Ledger::Slot slot : ledger.used()) {
        const LedgerEntry& entry = ledger.entry(slot);
        if (entry.kind() != LedgerKind::extent) continue;
        auto name = names.find(entry.more[0]);
        auto size = sizes.find(entry.id());
        auto& sum = sums[name == names.end() ? "another device" : name->second];
        for (Sum* each : {&sum, &all}) {
            ++each->extents;
            each->bytes += size == sizes.end() ? entry.node : size->second;
        }
    }
    std::string text;
    for (const auto& [name, sum] : sums) {
        text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", size_text(sum.bytes), name);
    }
    return fmt::format("{} has {} extents{}{}", who, all.extents, text.empty() ? "" : ": ", text);
}

// Renames the damaged files, which stay until the next salvage.
Status Survival::move_damaged_files() {
    const std::string from = catalog_path();
    const std::string to = from + ".damaged";
    if (memory_->salvage() == KeptMemory::Salvage::none) {
        for (const auto& file : Catalog::files(to)) unlink(file.c_str());
        memory_->set_salvage(KeptMemory::Salvage::moving);
    }
    if (memory_->salvage() == KeptMemory::Salvage::moving) {
        for (const char* suffix : {"", "-wal"}) {
            if (rename((from + suffix).c_str(), (to + suffix).c_str()) != 0 && errno != ENOENT) {
                return fail(errno, "cannot move {}{} away: {}", from, suffix, strerror(errno));
            }
        }
        memory_->set_salvage(KeptMemory::Salvage::filling);
    }
    for (const auto& file : Catalog::files(from)) unlink(file.c_str());
    return {};
}

Status Survival::begin_salvage() {
    salvaging_ = true;
    if (memory_ && memory_->salvage() == KeptMemory::Salvage::filled) end_salvage();
    if (!memory_) {
        memory_ = TRY(KeptMemory::create());
        keeper_->put(kLedger, memory_->fd());
        memory_->set_ready();
    }
    TRY(move_damaged_files());
    auto damaged = Catalog::salvage(catalog_path() + ".damaged", &memory_->journal());
    if (damaged) damaged_ = std::move(*damaged);
    else log_error("nothing can be read of the catalog: {}", damaged.error().message);
    TRY(make_catalog());
    TRY(catalog_->set_value("instance", std::to_string(instance_)));
    for (const char* key : {"devices", "limit", "staging", "user share", "pin share", "tiers", "tier free",
                            "tier folder", "made folder", "mountpoint", "mounts"}) {
        if (!damaged_) break;
        if (auto value = damaged_->value(key)) TRY(catalog_->set_value(key, *value));
    }
    if (damaged_) {
        for (const auto& [device, value] : damaged_->values(kReserves)) {
            TRY(catalog_->set_value(std::string(kReserves) + device, value));
        }
    }
    find_extent_notes();
    return {};
}

void Survival::end_salvage() {
    // One store makes the new catalog valid and the journal void.
    memory_->set_salvage(KeptMemory::Salvage::filled);
    memory_->journal().clear();
    memory_->set_salvage(KeptMemory::Salvage::none);
}

// Extents without a row in the catalog: restored from their ledger entry, or reported.
Status Survival::load_salvaged(Restorer& restorer, DeviceSet& devices) {
    const auto infos = devices.infos();
    for (const auto& [key, slot] : extent_notes_) {
        const LedgerEntry& entry = memory_->ledger().entry(slot);
        if (restorer.has_extent(key) || entry.check != entry.expected_check()) continue;
        auto info = std::ranges::find_if(
            infos, [&](const auto& each) { return KeptMemory::device_sum(each) == entry.more[0]; });
        if (info == infos.end()) {
            return fail(ENODEV,
                        "there is memory of a device that this gshmd was not started with (extent {}): name it with "
                        "--device",
                        key);
        }
        Catalog::Kept kept;
        kept.key = key;
        kept.device = static_cast<DeviceIndex>(info - infos.begin());
        kept.size_bytes = entry.node;
        kept.compressible = entry.more[1] != 0;
        kept.is_file = entry.more[2] != 0;
        SavedExtent extent;
        extent.key = key;
        extent.device = kept.device;
        extent.compressible = kept.compressible;
        // Unknown; assumed, since a fabric handle may be in use.
        extent.handle_given = (info->handle_kinds & kHandleFabric) != 0;
        extent.memory = TRY(take_extent(kept, devices));
        if (extent.memory == nullptr) continue;  // it was being created or freed
        extent.shown_bytes = extent.memory->size();
        // The owner of the slab is unknown: it belongs to root, and the key matches no further objects.
        if (entry.more[3] == kUnmappedSlab) extent.slab = SlabKey::unmapped(kept.device, kept.compressible);
        else if (entry.more[3] != 0) extent.slab = SlabKey{kept.device, 0, 0, 0600, kept.compressible, "salvaged"};
        TRY(restorer.add(std::move(extent)));
    }
    for (const auto& [key, fd] : kept_.descriptors) {
        if (fd && key < kSpecial)
            log_error("nobody knows what extent {} is; the keeper holds it until gshmd ends", key);
    }
    return {};
}

void Survival::report_salvaged(const Restorer& restorer) const {
    const auto& salvaged = restorer.salvaged();
    Catalog::Damage damage;
    if (damaged_) damage = damaged_->damage();
    log_warning("salvaged: {} objects have a name; {} more ({}) are in lost+found; {} rows could not be used{}{}",
                store_->object_count() - salvaged.objects, salvaged.objects, size_text(salvaged.bytes),
                damage.rows + salvaged.left_out + left_out_,
                damage.first.empty() && salvaged.first.empty() ? "" : ", the first: ",
                damage.first.empty() ? salvaged.first : damage.first);
}

}  // namespace gshm::core

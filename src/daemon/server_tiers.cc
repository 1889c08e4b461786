// The tiers of a server: their start, and their end.
#include "base/log.h"
#include "base/size.h"
#include "daemon/server.h"
#include "daemon/tier_specs.h"

namespace gshm::core {

Device* Server::first_gpu(DeviceSet& devices) {
    for (DeviceIndex i = 0; i < devices.size(); ++i) {
        if (devices.info(i).pins) return &devices.device(i);
    }
    return nullptr;
}

Status Server::start_tiers(const std::vector<std::string>& specs, unsigned free_percent,
                           const TierFolder::OnWait& on_wait) {
    Tiers::Settings settings;
    settings.free_percent = free_percent;
    std::vector<Object*> stored;
    {
        StoreLock lock(loop_.store_mutex());
        stored = store_.stored_objects();
    }
    constexpr const char* kFolder = "tier folder";
    const std::string former = survival_.setting(kFolder);
    for (const TierSpec& spec : TRY(parse_tiers(specs))) {
        if (spec.folder.empty()) {
            auto host = devices_->find("host");
            if (!host) return fail(EINVAL, "--tier host: {}", host.error().message);
            settings.host = *host;
            settings.host_bytes = spec.bytes;
            continue;
        }
        if (!stored.empty() && spec.folder != former) break;
        TierFolderSpec folder{.path = spec.folder, .keep = spec.keep};
        if (spec.bytes != 0) folder.capacity_bytes = spec.bytes;
        settings.folder = TRY(TierFolder::open(folder, survival_.instance(), on_wait));
    }
    if (!stored.empty() && !settings.folder) {
        return fail(EINVAL,
                    "{} objects are in the folder {}, which is no tier of this gshmd: start it with `--tier {}`, or "
                    "bring them back with `gshm promote` first",
                    stored.size(), former, former);
    }
    if (settings.folder) {
        std::unordered_set<TierFolder::Number> named;
        for (const Object* object : stored) named.insert(object->stored);
        for (TierFolder::Number missing : settings.folder->begin(named)) {
            log_error("{}: the file {} of an object is missing or incomplete", settings.folder->path(), missing);
        }
        if (Device* gpu = first_gpu(*devices_)) {
            if (auto pinned = settings.folder->pin(*gpu); !pinned) log_warning("{}", pinned.error().message);
        }
        TRY(survival_.set_setting(kFolder, settings.folder->path()));
        if (settings.folder->keeps()) TRY(start_keeping(*settings.folder));
    }
    for (DeviceIndex i = 0; settings.host && i < devices_->size(); ++i) {
        if (i == *settings.host) log_info("tier: host, {}", size_text(settings.host_bytes));
    }
    if (settings.folder) log_info("tier: {}", settings.folder->path());
    StoreLock lock(loop_.store_mutex());
    reclaim_.set_remove_stored([this](uint64_t file) {
        store_lock.assert_held();
        if (TierFolder* folder = tiers_.folder()) folder->remove(file);
    });
    tiers_.use(std::move(settings));
    return {};
}

Status Server::start_keeping(TierFolder& folder) {
    if (!survival_.can_keep()) return fail(EINVAL, "a tier with \":keep\" needs a keeper (see `gshmd --keeper`)");
    std::vector<std::string> names;
    for (DeviceIndex i = 0; i < devices_->size(); ++i) names.push_back(devices_->info(i).name);
    StoreLock lock(loop_.store_mutex());
    kept_objects_ = std::make_unique<KeptObjects>(store_, folder, std::move(names));
    survival_.set_kept_objects(kept_objects_.get());
    return kept_objects_->adopt([this] {
        store_lock.assert_held();
        return survival_.commit();
    });
}

void Server::empty_folder() {
    StoreLock lock(loop_.store_mutex());
    TierFolder* folder = tiers_.folder();
    if (folder == nullptr || folder->keeps()) return;
    for (const Object* object : store_.stored_objects()) folder->remove(object->stored);
}

}  // namespace gshm::core

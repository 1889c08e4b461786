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

namespace {

TierFolderSpec folder_spec(const TierSpec& spec) {
    TierFolderSpec folder{.path = spec.folder, .keep = spec.keep};
    if (spec.bytes != 0) folder.capacity_bytes = spec.bytes;
    // An earlier gshmd may have had another size, which does not matter for what it kept.
    folder.text = spec.keep ? spec.text : spec.text + ":keep";
    return folder;
}

}  // namespace

Status Server::check_tiers(const std::vector<std::string>& specs, const DeviceSet& devices,
                           const std::string& former_folder) {
    bool has_former = former_folder.empty();
    for (const TierSpec& spec : TRY(parse_tiers(specs))) {
        if (spec.folder.empty()) {
            if (auto host = devices.find("host"); !host) return fail(EINVAL, "--tier host: {}", host.error().message);
            continue;
        }
        has_former |= spec.folder == former_folder;
        TRY(TierFolder::check(folder_spec(spec)));
    }
    if (has_former) return {};
    return fail(EINVAL,
                "objects are in the folder {}, which would be no tier of this gshmd: name it, or bring them back with "
                "`gshm promote` first",
                former_folder);
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
    constexpr const char* kText = "tier specification";
    constexpr const char* kNumber = "tier number";
    const std::string former = survival_.setting(kFolder);
    std::string former_text = survival_.setting(kText);
    if (former_text.empty()) former_text = former;
    std::string text;
    for (const TierSpec& spec : TRY(parse_tiers(specs))) {
        if (spec.folder.empty()) {
            auto host = devices_->find("host");
            if (!host) return fail(EINVAL, "--tier host: {}", host.error().message);
            settings.host = *host;
            settings.host_bytes = spec.bytes;
            continue;
        }
        if (!stored.empty() && spec.folder != former) break;
        TierFolderSpec folder = folder_spec(spec);
        folder.has_objects = !stored.empty();
        if (folder.has_objects) folder.tier = strtoull(survival_.setting(kNumber).c_str(), nullptr, 16);
        if (spec.folder == former && former_text.ends_with(":keep")) folder.text = former_text;
        text = spec.text;
        settings.folder = TRY(TierFolder::open(folder, survival_.instance(), on_wait));
    }
    if (!stored.empty() && !settings.folder) {
        return fail(EINVAL,
                    "{} objects are in the folder {}, which is no tier of this gshmd: start it with `--tier {}`. To "
                    "end the use of the folder, then bring them back with `gshm promote`, and start gshmd again",
                    stored.size(), former, former_text);
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
        TRY(survival_.set_setting(kText, text));
        TRY(survival_.set_setting(kNumber, fmt::format("{:x}", settings.folder->tier())));
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

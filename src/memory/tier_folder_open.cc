// The start of a tier's folder: the checks, the lock, the marker, and what an earlier gshmd has left.
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/safe_folder.h"
#include "memory/tier_folder.h"

namespace gshm::core {
namespace {

constexpr FolderRole kRole = {"the tier", "choose another folder"};

// "": unknown, for example in a container.
std::string machine_id() {
    std::string id;
    std::getline(std::ifstream("/etc/machine-id"), id);
    return id;
}

uint64_t now_us() {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

std::string marker_part() {
    return kTierMarkerName + std::string(kTierPart);
}

Result<UniqueFd> open_folder(const std::string& path) {
    auto folder = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (folder) return folder;
    if (errno == ELOOP || errno == ENOTDIR) return fail(ENOTDIR, "the tier {} is not a folder", path);
    return fail(errno, "cannot open the tier {}: {}", path, strerror(errno));
}

Status make_folder(const std::string& path) {
    TRY(check_folders_above(path, kRole, false));
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
    if (errno != ENOENT) return fail(errno, "cannot make the tier {}: {}", path, strerror(errno));
    return fail(ENOENT, "cannot make the tier {}: the folder above it does not exist (is its disk mounted?)", path);
}

}  // namespace

namespace {

Result<TierFolderSpec> checked_spec(TierFolderSpec spec) {
    while (spec.path.size() > 1 && spec.path.ends_with('/')) spec.path.pop_back();
    if (!spec.path.starts_with('/')) return fail(EINVAL, "the tier \"{}\" is not an absolute path", spec.path);
    return spec;
}

bool is_missing(const std::string& path) {
    struct stat status = {};
    return ::lstat(path.c_str(), &status) != 0 && errno == ENOENT;
}

}  // namespace

Status TierFolder::open_checked() {
    TRY(check_own_folder(path(), kRole));
    folder_ = TRY(open_folder(path()));
    struct stat status = {};
    // Nobody else can replace it between the check and the opening; another process of this user could.
    if (::fstat(folder_.get(), &status) != 0) return fail_errno(path().c_str());
    if (status.st_uid != geteuid() || (status.st_mode & 022) != 0)
        return fail(EPERM, "the tier {} was replaced meanwhile", path());
    return {};
}

Result<std::unique_ptr<TierFolder>> TierFolder::open(const TierFolderSpec& given, uint64_t instance,
                                                     const OnWait& on_wait, TierDisk& disk) {
    const TierFolderSpec spec = TRY(checked_spec(given));
    if (spec.has_objects && is_missing(spec.path))
        return fail(ENODEV, "the tier {} is missing, and objects are in it: is its disk mounted?", spec.path);
    if (spec.has_objects) TRY(check_folders_above(spec.path, kRole, false));
    else TRY(make_folder(spec.path));
    std::unique_ptr<TierFolder> folder(new TierFolder(spec, instance, disk));
    TRY(folder->open_checked());
    TRY(folder->lock(on_wait));
    TRY(folder->mark());
    TRY(folder->scan());
    TRY(folder->scan_facts());
    return folder;
}

Status TierFolder::check(const TierFolderSpec& given, TierDisk& disk) {
    const TierFolderSpec spec = TRY(checked_spec(given));
    if (is_missing(spec.path)) {
        TRY(check_folders_above(spec.path, kRole, false));
        const auto above = std::filesystem::path(spec.path).parent_path().string();
        if (::access(above.c_str(), W_OK | X_OK) == 0) return {};
        return fail(errno, "the tier {} cannot be made in {}: {}", spec.path, above, strerror(errno));
    }
    TierFolder folder(spec, 0, disk);
    TRY(folder.open_checked());
    if (!TRY(folder.read_marker())) return folder.check_others();
    return spec.keep ? Status{} : folder.check_kept();
}

Status TierFolder::lock(const OnWait& on_wait) {
    constexpr int kStepMs = 10;
    constexpr int kSteps = 300;
    for (int step = 0; ::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0; ++step) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return fail(errno, "cannot lock the tier {}: {}", path(), strerror(errno));
        if (step == kSteps) return fail(EBUSY, "the tier {} is used by another gshmd", path());
        if (step == 0 && on_wait)
            on_wait(fmt::format("waiting for the tier {}, which a gshmd that is ending may still use", path()));
        ::poll(nullptr, 0, kStepMs);
    }
    return {};
}

// False: there is none.
Result<bool> TierFolder::read_marker() {
    const std::string what = path() + "/" + kTierMarkerName;
    auto file = disk_.open_file(folder_.get(), kTierMarkerName, O_RDONLY, false, what);
    if (!file && file.error().code == ENOENT) return false;
    if (!file) return std::unexpected(std::move(file.error()));
    std::string text(kBlockBytes, '\0');
    text.resize(TRY(disk_.read_all(file->get(), std::as_writable_bytes(std::span(text.data(), text.size())), 0, what)));
    auto marker = decode_tier_marker(text);
    if (!marker) return fail(EBADMSG, "{} is damaged: {}", what, marker.error().message);
    const std::string machine = machine_id();
    if (!marker->machine.empty() && !machine.empty() && marker->machine != machine)
        return fail(
            EXDEV,
            "the tier {} belongs to gshmd on another machine (machine-id {}, and this one is {}): choose another "
            "folder; or, if it was moved here for good, write this machine's id into {}",
            path(), marker->machine, machine, what);
    tier_ = marker->tier;
    return true;
}

Status TierFolder::make_marker() {
    if (::getrandom(&tier_, sizeof tier_, 0) != sizeof tier_) return fail_errno("getrandom");
    tier_ |= 1;  // not 0
    const std::string part = marker_part();
    const std::string what = path() + "/" + part;
    disk_.remove(folder_.get(), part.c_str());  // of a killed gshmd
    auto file = TRY(disk_.open_file(folder_.get(), part, O_WRONLY | O_CREAT | O_EXCL, false, what));
    const std::string text = encode_tier_marker({tier_, machine_id()});
    auto written = disk_.write_all(file.get(), std::as_bytes(std::span(text.data(), text.size())), 0, what);
    if (written && (disk_.sync(file.get()) != 0 || disk_.rename(folder_.get(), part.c_str(), kTierMarkerName) != 0 ||
                    disk_.sync(folder_.get()) != 0))
        written = fail_errno(what.c_str());
    if (!written) disk_.remove(folder_.get(), part.c_str());
    return written;
}

Status TierFolder::mark() {
    const bool is_marked = TRY(read_marker());
    if (spec_.has_objects && (!is_marked || (spec_.tier != 0 && spec_.tier != tier_)))
        return fail(ENODEV, "the tier {} is another folder than the one that objects are in: is its disk mounted?",
                    path());
    if (is_marked) return {};
    TRY(check_others());
    return make_marker();
}

Status TierFolder::check_others() const {
    // gshmd removes files here, so nobody else's may be among them.
    for (const auto& name : TRY(names_in(folder_.get(), path())))
        if (name != "lost+found" && name != marker_part())
            return fail(ENOTEMPTY, "the tier {} contains other files, such as {}: choose an empty folder", path(),
                        name);
    return {};
}

// Objects are kept, also those of the running catalog, and `keep` is missing.
Status TierFolder::check_kept() {
    const std::string what = path() + "/" + kTierFactsName;
    auto file = disk_.open_file(folder_.get(), kTierFactsName, O_RDONLY, false, what);
    if (!file && file.error().code == ENOENT) return {};
    if (!file) return std::unexpected(std::move(file.error()));
    struct stat status = {};
    if (::fstat(file->get(), &status) != 0) return fail_errno(what.c_str());
    std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
    bytes.resize(TRY(disk_.read_all(file->get(), bytes, 0, what)));
    std::vector<TierFactsFound> found;
    find_tier_facts(bytes, tier_, found);
    std::unordered_set<Number> kept;
    for (const auto& [header, offset] : found) {
        if (::fstatat(folder_.get(), tier_file_name(header.number).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
            kept.insert(header.number);
    }
    if (kept.empty()) return {};
    return fail(ENOTEMPTY,
                "the tier {} has {} kept objects: add \":keep\" to have them back (`--tier {}`). To use the folder "
                "without it, first remove them, or bring them back with `gshm promote`",
                path(), kept.size(), spec_.text.empty() ? path() + ":keep" : spec_.text);
}

Status TierFolder::scan() {
    uint64_t last = 0;
    MutexLock lock(mutex_);
    for (const auto& name : TRY(names_in(folder_.get(), path()))) {
        std::string_view stem = name;
        if (stem.ends_with(kTierPart)) {
            stem.remove_suffix(kTierPart.size());
            if (tier_file_number(stem) == 0 && stem != kTierFactsName && stem != kTierMarkerName) continue;
            // Of a killed gshmd.
            if (disk_.remove(folder_.get(), name.c_str()) != 0 && errno != ENOENT)
                log_warning("{}/{} cannot be removed: {}", path(), name, strerror(errno));
            continue;
        }
        const uint64_t number = tier_file_number(stem);
        if (number == 0) continue;
        last = std::max(last, number);
        struct stat status = {};
        if (::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(name.c_str());
        if (!S_ISREG(status.st_mode)) {
            log_warning("{}/{} is not a regular file, and is ignored", path(), name);
            continue;
        }
        constexpr uint64_t kSectorBytes = 512;
        const uint64_t bytes =
            std::min(static_cast<uint64_t>(status.st_size), static_cast<uint64_t>(status.st_blocks) * kSectorBytes);
        files_[number] = {bytes, false};
        used_bytes_ += bytes;
    }
    // Above all numbers of earlier daemons, whose files may be gone: no two files begin in the same microsecond.
    next_ = std::max(last + 1, now_us());
    return {};
}

Status TierFolder::scan_facts() {
    MutexLock lock(facts_mutex_);
    struct stat status = {};
    const bool exist = ::fstatat(folder_.get(), kTierFactsName, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!exist && !spec_.keep) return {};
    if (!spec_.keep) {
        // Without their facts they would be lost at the end of gshmd.
        TRY(check_kept());
        return TierFactsLog::remove(disk_, folder_.get());
    }
    facts_ = TRY(TierFactsLog::open(disk_, folder_.get(), path(), tier_, instance_));
    MutexLock state(mutex_);
    for (const uint64_t number : facts_->numbers()) {
        const auto file = files_.find(number);
        if (file == files_.end()) {
            facts_->forget(number);
            continue;
        }
        file->second.kept = facts_->instance_of(number) != instance_;
    }
    used_bytes_ += facts_->bytes();
    return {};
}

std::vector<TierFolder::Number> TierFolder::begin(const std::unordered_set<Number>& named) {
    std::vector<Number> missing;
    MutexLock lock(mutex_);
    for (const Number number : named) {
        const auto file = files_.find(number);
        if (file == files_.end()) missing.push_back(number);
        else file->second.kept = false;
    }
    std::erase_if(files_, [&](const auto& entry) {
        mutex_.assert_held();
        const auto& [number, file] = entry;
        if (named.contains(number) || file.kept) return false;
        leaving_.emplace_back(number, file.bytes);
        return true;
    });
    if (!leaving_.empty()) schedule();
    return missing;
}

}  // namespace gshm::core

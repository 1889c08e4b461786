#include "snapshot/folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

namespace gshm::core {
namespace {

// The run number in data-RRRR-NN; 0 for other names.
unsigned run_of(std::string_view name) {
    if (!name.starts_with("data-")) return 0;
    const char* end = name.data() + name.size();
    unsigned run = 0;
    unsigned thread = 0;
    const auto [dash, run_error] = std::from_chars(name.data() + 5, end, run);
    if (run_error != std::errc{} || dash == end || *dash != '-') return 0;
    const auto [rest, thread_error] = std::from_chars(dash + 1, end, thread);
    return thread_error == std::errc{} && rest == end && name == SnapshotFolder::data_file(run, thread) ? run : 0;
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
    std::vector<std::string> names;
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return fail_errno(path.c_str());
    while (const dirent* entry = ::readdir(folder)) names.emplace_back(entry->d_name);
    ::closedir(folder);
    std::erase_if(names, [](const auto& name) { return name == "." || name == ".."; });
    return names;
}

}  // namespace

Result<SnapshotFolder> SnapshotFolder::open(const std::string& given, Use use) {
    const std::string path = given.empty() ? "/" : given;
    if (use == Use::write && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(path.c_str());
    auto lock = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock) return fail_errno(path.c_str());
    if (::flock(lock.get(), (use == Use::write ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return fail_errno(path.c_str());
        return fail(EBUSY, "{} is in use by another gshm", path);
    }
    if (use == Use::write) {
        // Data files are removed later, so the folder must not contain other files.
        for (const auto& name : TRY(list_folder(path)))
            if (run_of(name) == 0 && !name.starts_with("manifest.jsonl"))
                return fail(ENOTEMPTY, "{} contains other files: {}", path, name);
    }
    return SnapshotFolder(path, std::move(lock));
}

std::string SnapshotFolder::data_file(unsigned run, unsigned thread) {
    return fmt::format("data-{:04}-{:02}", run, thread);
}

Result<std::vector<std::string>> SnapshotFolder::data_files() const {
    auto names = TRY(list_folder(path_));
    std::erase_if(names, [](const auto& name) { return run_of(name) == 0; });
    // Sorted by length first: runs with five digits come after those with four.
    std::ranges::sort(names, [](const auto& a, const auto& b) {
        return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
    });
    return names;
}

Result<unsigned> SnapshotFolder::next_run() const {
    unsigned last = 0;
    for (const auto& name : TRY(data_files())) last = std::max(last, run_of(name));
    return last + 1;
}

Status SnapshotFolder::remove(const std::string& file) const {
    if (::unlink(path_of(file).c_str()) != 0 && errno != ENOENT) return fail_errno(path_of(file).c_str());
    return {};
}

}  // namespace gshm::core

#include "client/load/source.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/xattr.h>
#include <unistd.h>

#include "tensors/index.h"

namespace gshm::core::client {
namespace {

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexExtension = ".safetensors.index.json";

std::string parent_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string last_part(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

bool is_below(const std::string& path, const std::string& folder) {
    return path.starts_with(folder) && (folder.ends_with('/') || path.substr(folder.size()).starts_with('/'));
}

// The path of an open file, which no later change of a symbolic link affects.
Result<std::string> path_of(int fd) {
    std::string path(PATH_MAX, '\0');
    const ssize_t bytes = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path.data(), path.size());
    if (bytes <= 0) return fail_errno("/proc/self/fd");
    path.resize(static_cast<size_t>(bytes));
    return path;
}

Result<std::string> real_folder(const std::string& path) {
    const auto folder = UniqueFd::adopt(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return fail_errno(path.c_str());
    return path_of(folder.get());
}

// The folder of blobs of the hub's cache that the folder is a snapshot of: X/blobs for X/snapshots/REVISION.
std::optional<std::string> blobs_of(const std::string& folder) {
    constexpr std::string_view kSnapshots = "/snapshots/";
    const size_t at = folder.rfind(kSnapshots);
    if (at == std::string::npos) return std::nullopt;
    return folder.substr(0, at) + "/blobs";
}

Result<UniqueFd> open_file(const std::string& path, struct stat* ret_status) {
    // O_NONBLOCK, since the open of a fifo waits for a writer.
    auto file = UniqueFd::adopt(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file || fstat(file.get(), ret_status) != 0) return fail_errno(path.c_str());
    if (!S_ISREG(ret_status->st_mode)) return fail(EINVAL, "{} is not a regular file", path);
    fcntl(file.get(), F_SETFL, 0);  // reads shall block
    return file;
}

// All bytes from an offset on, or fewer at the end of the file.
Result<std::string> read_bytes(int fd, uint64_t offset, uint64_t count, const std::string& path) {
    std::string bytes(count, '\0');
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t taken = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
        if (taken < 0 && errno == EINTR) continue;
        if (taken < 0) return fail_errno(path.c_str());
        if (taken == 0) break;
        done += static_cast<size_t>(taken);
    }
    bytes.resize(done);
    return bytes;
}

Error with_path(Error error, const std::string& path) {
    error.message = fmt::format("{}: {}", path, error.message);
    return error;
}

Result<tensors::Table> read_table(const SourceFile& file) {
    const auto bytes = static_cast<uint64_t>(file.status.st_size);
    auto header = TRY(read_bytes(file.fd.get(), 0, std::min<uint64_t>(bytes, tensors::kLengthBytes), file.path));
    const uint64_t length = TRY(tensors::Table::header_length(header, bytes));
    header += TRY(read_bytes(file.fd.get(), tensors::kLengthBytes, length, file.path));
    return tensors::Table::parse(std::move(header), bytes, tensors::Gaps::refused);
}

// The hub's cache names a blob by its hash: SHA-1 of git, or SHA-256 of large files.
bool is_blob_name(std::string_view name) {
    const auto is_hex = [](char one) { return (one >= '0' && one <= '9') || (one >= 'a' && one <= 'f'); };
    return (name.size() == 40 || name.size() == 64) && std::ranges::all_of(name, is_hex);
}

// Nobody checks that a blob has the hash that it is named by. So its size and time count too, as those of other files do.
std::string identity_of(const SourceFile& file, const std::string& folder) {
    const auto version =
        fmt::format("{}:{}.{:09}", file.status.st_size, file.status.st_mtim.tv_sec, file.status.st_mtim.tv_nsec);
    const auto blobs = blobs_of(folder);
    const auto name = last_part(file.path);
    if (blobs && parent_of(file.path) == *blobs && is_blob_name(name)) return fmt::format("blob:{}:{}", name, version);
    return fmt::format("file:{}:{}:{}", file.status.st_dev, file.status.st_ino, version);
}

// EXDEV: a link led to a place outside the folder, and not to the blobs of the same repository.
Status check_confined(const std::string& named, const std::string& path, const std::string& folder) {
    const auto blobs = blobs_of(folder);
    if (is_below(path, folder) || (blobs && is_below(path, *blobs))) return {};
    return fail(EXDEV, "{} leads out of its folder, to {}: load that file by its own path", named, path);
}

// `folder`: the real one that the file is named in.
Result<SourceFile> open_one(const std::string& path, std::string name, const std::string& folder, bool is_confined) {
    SourceFile file{.name = std::move(name)};
    file.fd = TRY(open_file(path, &file.status));
    file.path = TRY(path_of(file.fd.get()));
    if (is_confined) TRY(check_confined(path, file.path, folder));
    auto table = read_table(file);
    if (!table) return std::unexpected(with_path(std::move(table.error()), path));
    file.table = std::move(*table);
    file.identity = identity_of(file, folder);
    return file;
}

// ---- folders ----

// nullopt: the folder has no such file.
Result<std::optional<tensors::Index>> find_index(const std::string& folder, const std::string& name) {
    const auto path = folder + "/" + name;
    if (access(path.c_str(), F_OK) != 0) return std::nullopt;
    struct stat status = {};
    const auto file = TRY(open_file(path, &status));
    TRY(check_confined(path, TRY(path_of(file.get())), folder));
    const auto bytes = static_cast<uint64_t>(status.st_size);
    if (bytes > tensors::kIndexBytes) return fail(EBADMSG, "{}: too large for an index", path);
    const auto text = TRY(read_bytes(file.get(), 0, bytes, path));
    auto index = tensors::parse_index(text);
    if (!index) return std::unexpected(with_path(std::move(index.error()), path));
    return std::move(*index);
}

// The names of the files in the folder with an ending.
Result<std::vector<std::string>> list_files(const std::string& folder, std::string_view ending) {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entries(folder, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
        auto name = entries->path().filename().string();
        if (name.ends_with(ending) && !name.starts_with('.')) names.push_back(std::move(name));
    }
    if (error) return fail(error.value(), "{}: {}", folder, error.message());
    std::ranges::sort(names);
    return names;
}

struct Chosen {
    std::vector<std::string> files;
    std::optional<tensors::Index> index;
};

Chosen of_index(tensors::Index index) {
    auto files = index.files;
    return {std::move(files), std::move(index)};
}

// gshm.h has the order.
Result<Chosen> choose_files(const std::string& folder) {
    for (const std::string stem : {"model", "consolidated"}) {
        const auto single = stem + std::string(kExtension);
        if (access((folder + "/" + single).c_str(), F_OK) == 0) return Chosen{{single}, std::nullopt};
        auto index = TRY(find_index(folder, stem + std::string(kIndexExtension)));
        if (index) return of_index(std::move(*index));
    }
    const auto indexes = TRY(list_files(folder, kIndexExtension));
    if (indexes.size() > 1) {
        return fail(EBADMSG, "{} has several indexes ({}, {}): load a file by its own path", folder, indexes[0],
                    indexes[1]);
    }
    if (indexes.size() == 1) {
        auto index = TRY(find_index(folder, indexes[0]));
        if (index) return of_index(std::move(*index));
    }
    Chosen all{TRY(list_files(folder, kExtension)), std::nullopt};
    if (all.files.empty()) return fail(ENOENT, "{} has no safetensors files", folder);
    return all;
}

Status check_names(const std::vector<SourceFile>& files) {
    std::vector<std::pair<std::string_view, const SourceFile*>> names;
    for (const auto& file : files) {
        for (const auto& tensor : file.table.tensors()) names.emplace_back(file.table.name(tensor), &file);
    }
    std::ranges::sort(names);
    const auto same = std::ranges::adjacent_find(names, {}, [](const auto& entry) { return entry.first; });
    if (same == names.end()) return {};
    return fail(EBADMSG, "tensor \"{}\" is in two files, {} and {}", same->first, same->second->name,
                same[1].second->name);
}

Status check_index(const tensors::Index& index, const std::vector<SourceFile>& files) {
    for (const auto& entry : index.entries) {
        if (files[entry.file].table.find(entry.tensor) != nullptr) continue;
        return fail(EBADMSG, "the index has tensor \"{}\" in {}, whose header lacks it", entry.tensor,
                    index.files[entry.file]);
    }
    return {};
}

Result<Source> open_folder(const std::string& path) {
    const std::string folder = TRY(real_folder(path));
    const Chosen chosen = TRY(choose_files(folder));
    Source source{true, {}};
    size_t tensors = 0;
    for (const auto& name : chosen.files) {
        source.files.push_back(TRY(open_one(folder + "/" + name, name, folder, true)));
        tensors += source.files.back().table.tensors().size();
        if (tensors > tensors::kFolderTensors)
            return fail(EBADMSG, "{} has more than {} tensors", folder, tensors::kFolderTensors);
    }
    TRY(check_names(source.files));
    if (chosen.index) TRY(check_index(*chosen.index, source.files));
    return source;
}

}  // namespace

Result<Source> open_source(const std::string& path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) return fail_errno(path.c_str());
    if (S_ISDIR(status.st_mode)) return open_folder(path);
    Source source;
    source.files.push_back(TRY(open_one(path, last_part(path), TRY(real_folder(parent_of(path))), false)));
    return source;
}

Status check_unchanged(const SourceFile& file) {
    struct stat now = {};
    if (fstat(file.fd.get(), &now) != 0) return fail_errno(file.path.c_str());
    if (now.st_size < file.status.st_size) return fail(ENODATA, "{} became shorter while it was read", file.path);
    const bool same =
        now.st_size == file.status.st_size && memcmp(&now.st_mtim, &file.status.st_mtim, sizeof now.st_mtim) == 0;
    if (same) return {};
    return fail(EBUSY, "{} changed while it was read", file.path);
}

uint32_t mode_like(const SourceFile& file, gid_t gid) {
    const bool has_acl = fgetxattr(file.fd.get(), "system.posix_acl_access", nullptr, 0) > 0;
    bool others = (file.status.st_mode & S_IROTH) != 0 && !has_acl;
    // The group of the object need not be that of the file.
    const auto group_may = [&](const struct stat& status, mode_t group, mode_t other) {
        return (status.st_mode & (status.st_gid == gid ? group : other)) != 0;
    };
    bool group = group_may(file.status, S_IRGRP, S_IROTH) && !has_acl;
    // The file of a folder that others may not enter is not theirs to read.
    for (std::string folder = parent_of(file.path);; folder = parent_of(folder)) {
        struct stat status = {};
        if (stat(folder.c_str(), &status) != 0) return 0400;
        others = others && (status.st_mode & S_IXOTH) != 0;
        group = group && group_may(status, S_IXGRP, S_IXOTH);
        if (folder == "/" || folder == ".") break;
    }
    return 0400u | (group ? 0040u : 0u) | (others ? 0004u : 0u);
}

}  // namespace gshm::core::client

#include "snapshot_folder.h"

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

#include "failure.h"
#include "text.h"

namespace gshm::cli {
namespace {

// data-RRRR-NN; the number of the run, 0 if it is no such name.
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

// What is in the folder.
std::vector<std::string> list_folder(const std::string& path) {
    std::vector<std::string> names;
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) throw Failure::of_errno(path);
    while (const dirent* entry = ::readdir(folder)) names.emplace_back(entry->d_name);
    ::closedir(folder);
    std::erase_if(names, [](const auto& name) { return name == "." || name == ".."; });
    return names;
}

int open_folder(const std::string& path, SnapshotFolder::Use use) {
    if (use == SnapshotFolder::Use::write && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        throw Failure::of_errno(path);
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) throw Failure::of_errno(path);
    return fd;
}

}  // namespace

SnapshotFolder::SnapshotFolder(const std::string& path, Use use)
    : path_(path.empty() ? "/" : path), lock_(open_folder(path_, use)) {
    if (::flock(lock_.get(), (use == Use::write ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) throw Failure::of_errno(path_);
        throw Failure(EBUSY, printable(path_) + " is in use by another gshm", "wait until that has ended");
    }
    if (use == Use::read) return;
    // Files are removed here one day: not those of somebody else.
    for (const auto& name : list_folder(path_)) {
        if (run_of(name) != 0 || name.starts_with("manifest.jsonl")) continue;
        throw Failure(ENOTEMPTY, fmt::format("{} has something else in it: {}", printable(path_), printable(name)),
                      "choose a folder for the snapshot alone");
    }
}

std::string SnapshotFolder::data_file(unsigned run, unsigned thread) {
    return fmt::format("data-{:04}-{:02}", run, thread);
}

std::vector<std::string> SnapshotFolder::data_files() const {
    auto names = list_folder(path_);
    std::erase_if(names, [](const auto& name) { return run_of(name) == 0; });
    // A run of five digits is after all of four.
    std::ranges::sort(names, [](const auto& a, const auto& b) {
        return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
    });
    return names;
}

unsigned SnapshotFolder::next_run() const {
    unsigned last = 0;
    for (const auto& name : data_files()) last = std::max(last, run_of(name));
    return last + 1;
}

void SnapshotFolder::remove(const std::string& file) const {
    if (::unlink(path_of(file).c_str()) != 0 && errno != ENOENT) throw Failure::of_errno(path_of(file));
}

ChunkFiles::ChunkFiles(const SnapshotFolder& folder, std::vector<std::string> names)
    : folder_(folder.path()), names_(std::move(names)) {
    for (const auto& name : names_) {
        try {
            files_.emplace_back(BlockFile::open(folder.path_of(name)));
        } catch (const Failure& failure) {
            if (failure.code() != ENOENT) throw;
            files_.emplace_back(std::nullopt);
        }
    }
}

ChunkIndex::ChunkIndex(const ChunkFiles& files) {
    for (uint32_t i = 0; i < files.names().size(); ++i) scan(files, i);
}

const ChunkIndex::Found* ChunkIndex::find(uint64_t instance, uint64_t id, uint64_t offset) const {
    const auto found = found_.find({instance, id, offset});
    return found == found_.end() ? nullptr : &found->second;
}

void ChunkIndex::scan(const ChunkFiles& files, uint32_t index) {
    const BlockFile* file = files.file(index);
    if (file == nullptr) return;
    const BlockBuffer buffer(16 * kBlockBytes);  // small chunks lie close together, large ones far apart
    const std::byte* window = nullptr;
    uint64_t begin = 0;
    size_t bytes = 0;
    for (uint64_t at = 0;;) {
        if (window == nullptr || at < begin || at + ChunkHeader::kBytes > begin + bytes) {
            begin = at;
            window = file->read(begin, buffer.size() - kBlockBytes, buffer, &bytes);
        }
        ChunkHeader header;
        // Zeros, the end, or what a killed run did not finish.
        if (!ChunkHeader::decode({window + (at - begin), bytes - std::min<size_t>(at - begin, bytes)}, header)) return;
        found_[{header.object.instance, header.object.id, header.offset}] = {
            header.object, header.raw_bytes, {index, at, header.codec, header.stored_bytes, header.checksum}};
        at += ChunkHeader::kBytes + header.stored_bytes;
    }
}

}  // namespace gshm::cli

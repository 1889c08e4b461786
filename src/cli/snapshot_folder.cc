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

int open_folder(const std::string& path, SnapshotFolder::Use use) {
    if (use == SnapshotFolder::Use::write && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        throw Failure::of_errno(path);
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) throw Failure::of_errno(path);
    return fd;
}

}  // namespace

SnapshotFolder::SnapshotFolder(const std::string& path, Use use) : path_(path), lock_(open_folder(path, use)) {
    if (::flock(lock_.get(), (use == Use::write ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) throw Failure::of_errno(path);
    throw Failure(EBUSY, printable(path) + " is in use by another gshm", "wait until that has ended");
}

std::string SnapshotFolder::data_file(unsigned run, unsigned thread) {
    return fmt::format("data-{:04}-{:02}", run, thread);
}

std::vector<std::string> SnapshotFolder::data_files() const {
    std::vector<std::string> names;
    DIR* folder = ::opendir(path_.c_str());
    if (folder == nullptr) throw Failure::of_errno(path_);
    while (const dirent* entry = ::readdir(folder))
        if (std::string_view(entry->d_name).starts_with("data-")) names.emplace_back(entry->d_name);
    ::closedir(folder);
    // A run of five digits is after all of four.
    std::ranges::sort(names, [](const auto& a, const auto& b) {
        return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
    });
    return names;
}

unsigned SnapshotFolder::next_run() const {
    unsigned last = 0;
    for (const auto& name : data_files()) {
        unsigned run = 0;
        std::from_chars(name.data() + 5, name.data() + name.size(), run);
        last = std::max(last, run);
    }
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

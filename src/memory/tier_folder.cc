#include "memory/tier_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"

namespace gshm::core {
namespace {

// An error that says nothing of the disk itself: it is full, or the process lacks something at the moment.
bool is_passing(int code) {
    for (int passing : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, EAGAIN, ECANCELED})
        if (code == passing) return true;
    return false;
}

int64_t now_ns() {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

// An open file, and a part of its chunk headers.
struct TierFolder::Table {
    UniqueFd file;
    TierHead head;
    std::string path;
    uint64_t first = 0;  // the chunk of the first header
    std::vector<ChunkHeader> headers;
};

TierFolder::TierFolder(const TierFolderSpec& spec, uint64_t instance, TierDisk& disk)
    : spec_(spec),
      instance_(instance),
      disk_(disk),
      capacity_bytes_(spec.capacity_bytes),
      lanes_(spec.compression_level) {}

TierFolder::~TierFolder() = default;

// ---- state ----

uint64_t TierFolder::capacity_bytes() const {
    MutexLock lock(mutex_);
    return capacity_bytes_;
}

void TierFolder::set_capacity(uint64_t bytes) {
    MutexLock lock(mutex_);
    capacity_bytes_ = bytes;
}

uint64_t TierFolder::used_bytes() const {
    MutexLock lock(mutex_);
    return used_bytes_;
}

uint64_t TierFolder::objects() const {
    MutexLock lock(mutex_);
    return files_.size();
}

uint64_t TierFolder::file_bytes(uint64_t size_bytes) {
    return TierHead{.size_bytes = std::min(size_bytes, kTierObjectBytes)}.file_bytes();
}

uint64_t TierFolder::free_bytes() const {
    struct statvfs disk = {};
    if (!failure().empty() || ::fstatvfs(folder_.get(), &disk) != 0) return 0;
    uint64_t free = disk.f_bavail * disk.f_frsize;
    {
        MutexLock lock(mutex_);
        free = std::min(free, capacity_bytes_ - std::min(used_bytes_, capacity_bytes_));
    }
    free = std::min(align_down(free, kBlockBytes), kTierObjectBytes);
    const uint64_t overhead = TierHead{.size_bytes = free}.data_offset();
    return free > overhead ? free - overhead : 0;
}

std::string TierFolder::failure() const {
    MutexLock lock(mutex_);
    return failure_;
}

void TierFolder::note_failure(const std::string& why) {
    {
        MutexLock lock(mutex_);
        if (!failure_.empty()) return;
        failure_ = why;
    }
    log_error("the tier {} has failed and takes no further objects: {}", path(), why);
}

std::unexpected<Error> TierFolder::disk_error(Error error) {
    if (error.code == ENOSPC || error.code == EDQUOT) {
        error.message = fmt::format("the disk of the tier {} is full: {}", path(), error.message);
    } else if (!is_passing(error.code)) {
        struct stat folder = {};
        if (::fstat(folder_.get(), &folder) == 0 && folder.st_nlink == 0) error.message = "the folder was removed";
        note_failure(error.message);
        error.message = fmt::format("the tier {} has failed: {}", path(), error.message);
        error.code = EIO;
    }
    return std::unexpected(std::move(error));
}

Status TierFolder::pin(Device& device) {
    return lanes_.pin(device);
}

// ---- write ----

Result<TierFolder::Number> TierFolder::reserve(uint64_t bytes, uint64_t over_bytes) {
    auto attempt = [&]() -> Result<Number> {
        MutexLock lock(mutex_);
        if (!failure_.empty())
            return fail(EIO, "the tier {} has failed and takes no further objects: {}", path(), failure_);
        const uint64_t most = capacity_bytes_ + std::min(over_bytes, UINT64_MAX - capacity_bytes_);
        if (used_bytes_ > most || bytes > most - used_bytes_)
            return fail(ENOSPC, "the tier {} is full: {} of {} are used, and the object needs {}", path(),
                        size_text(used_bytes_), size_text(capacity_bytes_), size_text(bytes));
        used_bytes_ += bytes;
        return next_++;
    };
    auto number = attempt();
    if (number || number.error().code != ENOSPC) return number;
    wait_for_removals();
    return attempt();
}

Result<TierFolder::Number> TierFolder::write(const Extent& from, uint64_t offset, uint64_t size_bytes,
                                             const Check& check, uint64_t over_bytes) {
    if (size_bytes > kTierObjectBytes) return fail(EFBIG, "an object of {} bytes is too large for a file", size_bytes);
    TierHead head{.tier = tier_, .size_bytes = size_bytes, .created_ns = now_ns()};
    head.number = TRY(reserve(head.file_bytes(), over_bytes));
    bool left = false;
    auto bytes = write_file(head, from, offset, check, &left);
    MutexLock lock(mutex_);
    // A part that could not be removed stays counted.
    if (!left) used_bytes_ -= head.file_bytes();
    if (!bytes) return std::unexpected(std::move(bytes.error()));
    used_bytes_ += *bytes;
    files_[head.number] = {*bytes, false};
    return head.number;
}

Result<uint64_t> TierFolder::write_file(const TierHead& head, const Extent& from, uint64_t offset, const Check& check,
                                        bool* ret_left) {
    const std::string name = tier_file_name(head.number);
    const std::string part = name + std::string(kTierPart);
    const std::string what = path_of(head.number);
    auto file = disk_.open_file(folder_.get(), part, O_WRONLY | O_CREAT | O_EXCL, true, what);
    bool renamed = false;
    auto attempt = [&]() -> Result<uint64_t> {
        if (!file) return disk_error(file.error());
        const int fd = file->get();
        if (disk_.allocate(fd, head.file_bytes()) != 0) {
            if (errno != EOPNOTSUPP) return disk_error({errno, fmt::format("{}: {}", what, strerror(errno))});
            if (disk_.resize(fd, head.file_bytes()) != 0)
                return disk_error({errno, fmt::format("{}: {}", what, strerror(errno))});
        }
        TRY(write_chunks(fd, head, from, offset, check));
        struct stat status = {};
        // Without `keep` nobody reads the file after the machine's restart; all that is written past the page cache is
        // on the disk, and its errors are known.
        const bool is_direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
        if (((spec_.keep || !is_direct) && disk_.sync(fd) != 0) || ::fstat(fd, &status) != 0 ||
            disk_.rename(folder_.get(), part.c_str(), name.c_str()) != 0)
            return disk_error({errno, fmt::format("{}: {}", what, strerror(errno))});
        renamed = true;
        if (spec_.keep && disk_.sync(folder_.get()) != 0)
            return disk_error({errno, fmt::format("{}: {}", what, strerror(errno))});
        constexpr uint64_t kSectorBytes = 512;  // of st_blocks
        return std::min(head.file_bytes(), static_cast<uint64_t>(status.st_blocks) * kSectorBytes);
    };
    auto written = attempt();
    if (written) return written;
    if (disk_.remove(folder_.get(), (renamed ? name : part).c_str()) != 0 && errno != ENOENT) {
        *ret_left = true;
        note_failure(fmt::format("{} cannot be removed: {}", what, strerror(errno)));
    }
    return written;
}

Status TierFolder::write_chunks(int file, const TierHead& head, const Extent& from, uint64_t offset,
                                const Check& check) {
    const std::string what = path_of(head.number);
    const BlockBuffer table(head.data_offset());
    auto step = [&](uint64_t chunk, TierLanes::Lane& lane) -> Status {
        if (stopped_) return fail(ECANCELED, "gshmd ends");
        if (check) TRY(check());
        ChunkHeader header{.raw_bytes = raw_bytes_of(head.size_bytes, chunk), .object = head.identity()};
        header.offset = chunk * kSnapshotChunkBytes;
        const auto raw = lane.raw.first(header.raw_bytes);
        TRY(from.copy_out(offset + header.offset, raw));
        header.checksum = checksum_of(raw);
        const auto frame = lane.compressor.compress(raw);
        header.codec = frame.empty() ? Codec::raw : Codec::zstd;
        header.stored_bytes = static_cast<uint32_t>(frame.empty() ? raw.size() : frame.size());
        if (!frame.empty()) std::memcpy(raw.data(), frame.data(), frame.size());
        header.encode(std::span<std::byte, ChunkHeader::kBytes>(table.data() + TierHead::header_offset(chunk),
                                                                ChunkHeader::kBytes));
        const auto blocks = lane.raw.first(round_up(header.stored_bytes, kBlockBytes));
        std::ranges::fill(blocks.subspan(header.stored_bytes), std::byte{});
        if (auto done = disk_.write_all(file, blocks, head.chunk_offset(chunk), what); !done)
            return disk_error(done.error());
        // What compression saves. It costs only space if the file system cannot free it.
        const uint64_t room = round_up(header.raw_bytes, kBlockBytes);
        if (blocks.size() < room) disk_.punch(file, head.chunk_offset(chunk) + blocks.size(), room - blocks.size());
        return {};
    };
    TRY(lanes_.run(0, head.chunks(), step));
    head.encode(std::span<std::byte, TierHead::kBytes>(table.data(), TierHead::kBytes));
    if (auto done = disk_.write_all(file, {table.data(), table.size()}, 0, what); !done)
        return disk_error(done.error());
    return {};
}

// ---- read ----

// Reads the headers of the chunks [first, first + count), cut at the last one.
Result<TierFolder::Table> TierFolder::open_table(Number number, uint64_t first, uint64_t count) {
    Table table;
    table.path = path_of(number);
    auto damaged = [&](std::string_view why) { return fail(EIO, "{} is damaged: {}", table.path, why); };
    auto file = disk_.open_file(folder_.get(), tier_file_name(number), O_RDONLY, true, table.path);
    if (!file && file.error().code == ENOENT) {
        struct stat folder = {};
        if (::fstat(folder_.get(), &folder) == 0 && folder.st_nlink == 0) return disk_error(file.error());
        return fail(EIO, "{} is missing: another process has removed it", table.path);
    }
    if (!file && (file.error().code == ENOTSUP || file.error().code == ELOOP)) return damaged("it is no regular file");
    if (!file) return disk_error(file.error());
    table.file = *std::move(file);
    const BlockBuffer begin(kBlockBytes);
    auto got = disk_.read_all(table.file.get(), {begin.data(), begin.size()}, 0, table.path);
    if (!got) return disk_error(got.error());
    if (!TierHead::decode({begin.data(), *got}, table.head)) return damaged("its head is damaged");
    if (table.head.tier != tier_ || table.head.number != number)
        return damaged("it was another file, and has been renamed or copied");
    table.first = std::min(first, table.head.chunks());
    count = std::min(count, table.head.chunks() - table.first);
    const uint64_t at = TierHead::header_offset(table.first);
    const uint64_t from = align_down(at, kBlockBytes);
    const uint64_t to = round_up(at + count * ChunkHeader::kBytes, kBlockBytes);
    // A file that is too short is noticed before memory is allocated for the headers that it should have.
    struct stat status = {};
    if (::fstat(table.file.get(), &status) != 0) return fail_errno(table.path.c_str());
    if (static_cast<uint64_t>(status.st_size) < table.head.data_offset()) return damaged("the end of it is missing");
    if (count == 0) return table;
    const BlockBuffer headers(to - from);
    got = disk_.read_all(table.file.get(), {headers.data(), headers.size()}, from, table.path);
    if (!got) return disk_error(got.error());
    if (*got < headers.size()) return damaged("the end of it is missing");
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t chunk = table.first + i;
        ChunkHeader header;
        if (!ChunkHeader::decode({headers.data() + (at - from) + i * ChunkHeader::kBytes, ChunkHeader::kBytes}, header))
            return damaged(fmt::format("the header of chunk {} is damaged", chunk));
        if (header.object != table.head.identity() || header.offset != chunk * kSnapshotChunkBytes ||
            header.raw_bytes != raw_bytes_of(table.head.size_bytes, chunk))
            return damaged(fmt::format("the header of chunk {} belongs to another chunk", chunk));
        table.headers.push_back(header);
    }
    return table;
}

Result<std::span<const std::byte>> TierFolder::read_chunk(const Table& table, uint64_t chunk, TierLanes::Lane& lane) {
    const ChunkHeader& header = table.headers[chunk - table.first];
    auto damaged = [&](std::string_view why) {
        return fail(EIO, "{} is damaged: chunk {} (bytes {} to {} of the object): {}", table.path, chunk, header.offset,
                    header.offset + header.raw_bytes, why);
    };
    const bool is_raw = header.codec == Codec::raw;
    if (!is_raw && !lane.frame) lane.frame.emplace(kSnapshotChunkBytes);
    const std::span<std::byte> whole = is_raw ? lane.raw : std::span(lane.frame->data(), lane.frame->size());
    const auto blocks = whole.first(round_up(header.stored_bytes, kBlockBytes));
    const auto got = disk_.read_all(table.file.get(), blocks, table.head.chunk_offset(chunk), table.path);
    if (!got) return disk_error(got.error());
    if (*got < header.stored_bytes) return damaged("the file ends before it does");
    const auto raw = lane.raw.first(header.raw_bytes);
    if (is_raw && header.stored_bytes != header.raw_bytes) return damaged("its size is wrong");
    if (!is_raw && !lane.decompressor.decompress(whole.first(header.stored_bytes), raw))
        return damaged("it cannot be decompressed");
    if (checksum_of(raw) != header.checksum) return damaged("its checksum is wrong");
    return raw;
}

Status TierFolder::read(Number number, Extent& to, uint64_t offset, uint64_t size_bytes, const Check& check) {
    const Table table = TRY(open_table(number, 0, chunk_count(size_bytes)));
    if (table.head.size_bytes != size_bytes)
        return fail(EIO, "{} has {} bytes, and the object has {}", table.path, table.head.size_bytes, size_bytes);
    return lanes_.run(0, table.head.chunks(), [&](uint64_t chunk, TierLanes::Lane& lane) -> Status {
        if (stopped_) return fail(ECANCELED, "gshmd ends");
        if (check) TRY(check());
        const auto bytes = TRY(read_chunk(table, chunk, lane));
        return to.copy_in(offset + chunk * kSnapshotChunkBytes, bytes);
    });
}

Status TierFolder::read_range(Number number, uint64_t offset, std::span<std::byte> destination) {
    if (offset > kTierObjectBytes || destination.size() > kTierObjectBytes)
        return fail(EINVAL, "{} is beyond the end of any object", offset);
    const uint64_t first = offset / kSnapshotChunkBytes;
    const uint64_t end = chunk_count(offset + destination.size());
    const Table table = TRY(open_table(number, first, end - std::min(first, end)));
    if (offset > table.head.size_bytes || destination.size() > table.head.size_bytes - offset)
        return fail(EINVAL, "{} has {} bytes: there are no {} at {}", table.path, table.head.size_bytes,
                    destination.size(), offset);
    return lanes_.run(table.first, table.headers.size(), [&](uint64_t chunk, TierLanes::Lane& lane) -> Status {
        if (stopped_) return fail(ECANCELED, "gshmd ends");
        const auto bytes = TRY(read_chunk(table, chunk, lane));
        const uint64_t at = chunk * kSnapshotChunkBytes;
        const uint64_t from = std::max(at, offset);
        const uint64_t to = std::min(at + bytes.size(), offset + destination.size());
        std::memcpy(destination.data() + (from - offset), bytes.data() + (from - at), to - from);
        return {};
    });
}

}  // namespace gshm::core

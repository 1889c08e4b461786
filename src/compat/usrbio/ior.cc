#include "ior.h"

#include <algorithm>
#include <chrono>

namespace gshm::usrbio {
namespace {

using Clock = std::chrono::system_clock;  // CLOCK_REALTIME, as in 3FS's deadlines

Clock::time_point to_time_point(const timespec& time) {
    // Distant deadlines mean no limit, and must not overflow.
    constexpr time_t kFar = 1'000'000'000;
    const std::chrono::seconds seconds(std::clamp<time_t>(time.tv_sec, 0, Clock::to_time_t(Clock::now()) + kFar));
    return Clock::time_point(seconds +
                             std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(time.tv_nsec)));
}

// In steps of a second, since the clock may be set meanwhile. 0: the deadline has passed.
int ms_until(const timespec* deadline) {
    constexpr std::chrono::milliseconds kPiece(1000);
    if (deadline == nullptr) return static_cast<int>(kPiece.count());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(to_time_point(*deadline) - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kPiece).count());
}

}  // namespace

Result<std::unique_ptr<Ior>> Ior::create(std::shared_ptr<Daemon> daemon, const Options& options) {
    TRY(check_argument(options.entries > 0, "a ring has at least one entry"));
    gshm_ring_options asked = GSHM_RING_OPTIONS_INIT;
    asked.entries = static_cast<uint32_t>(options.entries);
    asked.flags = GSHM_RING_SHARED;
    gshm_ring* ring = nullptr;
    if (int code = gshm_ring_create(daemon->client().get(), &asked, &ring); code != 0) {
        return Error{-code, gshm_last_error()};
    }
    return std::unique_ptr<Ior>(new Ior(std::move(daemon), ring, options));
}

Ior::Ior(std::shared_ptr<Daemon> daemon, gshm_ring* ring, const Options& options)
    : daemon_(std::move(daemon)), ring_(ring), options_(options) {
    const auto entries = static_cast<size_t>(options.entries);
    completions_.resize(entries);
    slots_.resize(entries);
    for (int index = options.entries - 1; index >= 0; --index) free_.push_back(index);
    version_ = FileTable::instance().version();
}

Ior::~Ior() {
    gshm_ring_destroy(ring_);
}

Result<const Ior::AddedFile*> Ior::find_file(int fd) {
    if (FileTable::instance().version() != version_ || !removed_.empty()) forget_removed_files();
    if (auto found = files_.find(fd); found != files_.end()) return &found->second;
    AddedFile added{FileTable::instance().find(fd)};
    if (!added.file) return Error{EBADF, fmt::format("{} is not registered", fd)};
    // The program may use both numbers of a file.
    for (const auto& [number, other] : files_) {
        if (other.file == added.file) return &files_.emplace(fd, other).first->second;
    }
    if (int code = gshm_ring_add_file(ring_, added.file->fd(), &added.index); code != 0) {
        return Error{-code, gshm_last_error()};
    }
    return &files_.emplace(fd, std::move(added)).first->second;
}

void Ior::forget_removed_files() {
    auto& table = FileTable::instance();
    version_ = table.version();
    for (auto at = files_.begin(); at != files_.end();) {
        if (table.find(at->first) == at->second.file) {
            ++at;
            continue;
        }
        if (std::ranges::find(removed_, at->second.index) == removed_.end()) removed_.push_back(at->second.index);
        at = files_.erase(at);
    }
    // Files in use are removed later.
    std::erase_if(removed_, [&](uint32_t index) { return gshm_ring_remove_file(ring_, index) != -EBUSY; });
}

int Ior::prepare(const Iov& iov, uint64_t offset, uint64_t bytes, int fd, uint64_t file_offset, const void* user_data) {
    const std::lock_guard lock(mutex_);
    auto added = find_file(fd);
    if (!added) return -added.error().code;
    const AddedFile& file = **added;
    if (options_.for_read ? !file.file->is_readable() : !file.file->is_writable()) return -EACCES;
    if (free_.empty()) return -EAGAIN;
    const int index = free_.back();
    const gshm_range range = {iov.object.get(), offset, bytes};
    const gshm_io io = {.struct_size = sizeof io,
                        .operation = static_cast<uint32_t>(options_.for_read ? GSHM_IO_READ : GSHM_IO_WRITE),
                        .file = file.index,
                        .flags = 0,
                        .file_offset = file_offset,
                        .ranges = &range,
                        .range_count = 1,
                        .user_data = static_cast<uint64_t>(index)};
    if (int code = gshm_ring_prepare(ring_, &io); code != 0) return code;
    const bool look_for_holes = options_.for_read && (options_.flags & HF3FS_IOR_FORBID_READ_HOLES) != 0;
    slots_[static_cast<size_t>(index)] = {user_data, file_offset, look_for_holes ? file.file : nullptr};
    free_.pop_back();
    ++prepared_;
    if (options_.io_depth > 0 && prepared_ >= static_cast<size_t>(options_.io_depth)) {
        if (int code = submit_prepared(); code < 0) log_warning("cannot start a batch yet: {}", gshm_last_error());
    }
    return index;
}

int Ior::submit() {
    const std::lock_guard lock(mutex_);
    return submit_prepared();
}

int Ior::submit_prepared() {
    if (prepared_ == 0) return 0;
    int begun = gshm_ring_submit(ring_);
    if (begun < 0) return begun;
    under_way_ += prepared_;
    prepared_ = 0;
    begun_.notify_all();
    return 0;
}

hf3fs_cqe Ior::finish(const gshm_completion& completion) {
    const auto index = static_cast<size_t>(completion.user_data);
    Slot slot = std::exchange(slots_[index], {});
    free_.push_back(static_cast<int>(index));
    --under_way_;
    int64_t result = completion.result;
    if (result > 0 && slot.file && slot.file->has_hole(slot.file_offset, static_cast<uint64_t>(result)))
        result = -ENODATA;
    return {.index = static_cast<int32_t>(index), .reserved = 0, .result = result, .userdata = slot.user_data};
}

int Ior::take(std::unique_lock<std::mutex>& lock, std::span<hf3fs_cqe> cqes, size_t least, int timeout_ms) {
    const size_t room = std::min(cqes.size(), completions_.size());
    lock.unlock();
    const int taken = gshm_ring_wait(ring_, completions_.data(), room, std::min(least, room), timeout_ms);
    lock.lock();
    for (int i = 0; i < taken; ++i) cqes[static_cast<size_t>(i)] = finish(completions_[static_cast<size_t>(i)]);
    return taken;
}

int Ior::wait(std::span<hf3fs_cqe> cqes, size_t least, const timespec* deadline) {
    std::unique_lock turn(waiting_, std::defer_lock);
    if (deadline == nullptr) turn.lock();
    else if (!turn.try_lock() && !turn.try_lock_until(to_time_point(*deadline))) return 0;
    return wait_in_turn(cqes, least, deadline);
}

int Ior::wait_in_turn(std::span<hf3fs_cqe> cqes, size_t least, const timespec* deadline) {
    size_t filled = 0;
    size_t awaited = 0;
    int timeout_ms = 0;
    std::unique_lock lock(mutex_);
    // Available completions first, without waiting, also if the deadline has passed.
    for (;;) {
        const int taken = take(lock, cqes.subspan(filled), awaited, timeout_ms);
        if (taken < 0) return filled > 0 ? static_cast<int>(filled) : taken;
        filled += static_cast<size_t>(taken);
        if (filled >= least) return static_cast<int>(filled);
        timeout_ms = ms_until(deadline);
        if (timeout_ms == 0) return static_cast<int>(filled);
        // A program that forgot to submit would wait forever.
        if (int code = submit_prepared(); code < 0) return filled > 0 ? static_cast<int>(filled) : code;
        awaited = std::min(least - filled, under_way_);
        // Only another thread can start operations.
        if (under_way_ == 0) begun_.wait_for(lock, std::chrono::milliseconds(timeout_ms));
    }
}

}  // namespace gshm::usrbio

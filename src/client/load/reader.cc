#include "client/load/reader.h"

#include <algorithm>
#include <cstring>

namespace gshm::core::client {
namespace {

// As in transfers of whole files: large enough to hide the cost of a round trip, and small enough for steady progress.
constexpr uint64_t kRangeBytes = uint64_t{16} << 20;
constexpr uint64_t kUnderWayBytes = 32 * kRangeBytes;
constexpr uint32_t kEntries = 512;
constexpr uint64_t kGatheredBytes = 128 << 10;  // larger ranges of slices are read by themselves
constexpr int kTellEveryMs = 100;
constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

Result<Reader> Reader::create(const std::shared_ptr<Core>& core) {
    Reader reader;
    reader.ring_ = TRY(Ring::take(core, kEntries));
    reader.slots_.resize(kEntries);
    for (uint32_t i = kEntries; i-- > 0;) reader.free_slots_.push_back(i);
    return reader;
}

Reader::~Reader() {
    if (!ring_) return;
    try {
        stop();
        if (gather_ && !is_stopped_) is_stopped_ = !ring_->remove_file(gather_file_);
        if (!is_stopped_) Ring::put_aside(std::move(ring_));
    } catch (const std::exception&) {  // a lack of memory: the ring ends
    }
}

Status Reader::add(size_t key, gshm_object& object, const SourceFile& file, const std::vector<Run>& runs) {
    if (runs.empty()) {
        complete_.push_back(key);
        return {};
    }
    auto task = std::make_unique<Task>();
    *task = {key, &object, &file, TRY(ring_->add_file(file.fd.get())), &runs};
    tasks_.push_back(task.get());
    all_.push_back(std::move(task));
    return fill();
}

Status Reader::prepare(Task& task, uint32_t file, uint64_t file_offset, const gshm_range& range,
                       std::optional<uint32_t> buffer) {
    const uint32_t slot = free_slots_.back();
    TRY(ring_->prepare({sizeof(gshm_io), GSHM_IO_READ, file, 0, file_offset, &range, 1, slot}));
    free_slots_.pop_back();
    slots_[slot] = {&task, range.bytes, buffer};
    ++task.under_way;
    ++under_way_;
    under_way_bytes_ += range.bytes;
    return {};
}

Reader::Begun Reader::advance(Task& task, uint64_t rows) {
    task.row_offset = 0;
    task.row += rows;
    if (task.row < (*task.runs)[task.run].count) return Begun::some;
    task.row = 0;
    return ++task.run < task.runs->size() ? Begun::some : Begun::all;
}

Result<Reader::Begun> Reader::begin_next(Task& task) {
    const Run& run = (*task.runs)[task.run];
    if (run.count > 1 && run.bytes <= kGatheredBytes) return begin_gathered(task);
    const uint64_t bytes = std::min(kRangeBytes, run.bytes - task.row_offset);
    const gshm_range range = {task.object, run.object_offset + task.row * run.bytes + task.row_offset, bytes};
    TRY(prepare(task, task.ring_file, run.file_offset + task.row * run.stride + task.row_offset, range, {}));
    task.row_offset += bytes;
    return task.row_offset < run.bytes ? Begun::some : advance(task, 1);
}

Result<Reader::Begun> Reader::begin_gathered(Task& task) {
    if (!gather_) {
        gather_.emplace(TRY(GatherBuffers::create()));
        gather_file_ = TRY(ring_->add_file(gather_->fd()));
    }
    const auto buffer = gather_->take();
    if (!buffer) return Begun::none;
    const Run& run = (*task.runs)[task.run];
    const uint64_t rows = std::min(run.count - task.row, GatherBuffers::kBytes / run.bytes);
    const auto filled = gather_->fill(
        *buffer, {task.file->fd.get(), run.file_offset + task.row * run.stride, run.bytes, run.stride, rows});
    if (!filled) return std::unexpected(failure(task, filled.error().code));
    const gshm_range range = {task.object, run.object_offset + task.row * run.bytes, rows * run.bytes};
    TRY(prepare(task, gather_file_, GatherBuffers::offset(*buffer), range, buffer));
    return advance(task, rows);
}

Error Reader::failure(const Task& task, int code) const {
    if (code == ENODATA) return {ENODATA, fmt::format("{} became shorter while it was read", task.file->path)};
    return {code, fmt::format("reading {} failed: {}", task.file->path, strerror(code))};
}

// The objects take turns, so that several devices are busy.
Status Reader::fill() {
    while (!tasks_.empty() && !free_slots_.empty() && under_way_bytes_ < kUnderWayBytes) {
        Task* task = tasks_.front();
        const Begun begun = TRY(begin_next(*task));
        if (begun == Begun::none) break;
        tasks_.pop_front();
        if (begun == Begun::some) tasks_.push_back(task);
        else task->is_begun = true;
        // A gathered range is begun at once, since the next one takes a while to fill.
        if (gather_) (void)ring_->submit();
    }
    (void)ring_->submit();  // a transfer that cannot begin completes with its error
    return {};
}

void Reader::end_if_complete(Task& task) {
    if (!task.is_begun || task.under_way > 0) return;
    (void)ring_->remove_file(task.ring_file);
    complete_.push_back(task.key);
    std::erase_if(all_, [&](const auto& one) { return one.get() == &task; });
}

Result<std::vector<size_t>> Reader::step() {
    TRY(fill());
    if (!complete_.empty() || under_way_ == 0) return std::exchange(complete_, {});
    gshm_completion completions[64];
    const size_t count = TRY(ring_->wait(completions, 1, kTellEveryMs));
    std::optional<Error> error;
    for (size_t i = 0; i < count; ++i) {
        const auto& one = completions[i];
        const auto slot = static_cast<uint32_t>(one.user_data);
        const auto [task, bytes, buffer] = slots_[slot];
        if (buffer) gather_->give(*buffer);
        free_slots_.push_back(slot);
        --task->under_way;
        --under_way_;
        under_way_bytes_ -= bytes;
        if (one.result < 0) {
            if (!error) error = failure(*task, static_cast<int>(-one.result));
        } else if (static_cast<uint64_t>(one.result) < bytes) {
            if (!error) error = failure(*task, ENODATA);
        } else {
            done_bytes_ += bytes;
            end_if_complete(*task);
        }
    }
    if (error) return std::unexpected(std::move(*error));
    TRY(fill());
    return std::exchange(complete_, {});
}

void Reader::stop() {
    is_stopped_ = is_stopped_ || !tasks_.empty() || !all_.empty();
    tasks_.clear();
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (under_way_ > 0) {
        gshm_completion completions[64];
        const auto count = ring_->wait(completions, 1, kTellEveryMs);
        if (!count) break;  // the ring's end waits
        under_way_ -= *count;
        if (std::chrono::steady_clock::now() > until && ring_->abandon()) break;
    }
    under_way_ = 0;
}

}  // namespace gshm::core::client

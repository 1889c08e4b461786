#include "client/ring/ring.h"

#include <algorithm>
#include <bit>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/limits.h"

namespace gshm::core::client {
namespace {

// A dead gshmd wakes no waiter. After this time without a completion, the client pings it.
constexpr std::chrono::milliseconds kDoubt{100};

// Guards which rings know which objects. Taken before the lock of a ring.
Mutex& registry() {
    static auto* mutex = new Mutex;
    return *mutex;
}

}  // namespace

Result<std::unique_ptr<Ring>> Ring::create(std::shared_ptr<Core> core, uint32_t entries) {
    if (entries == 0 || entries > limits::kRingEntries) {
        return fail(EINVAL, "a ring of {} entries: it has 1 to {}", entries, limits::kRingEntries);
    }
    std::unique_ptr<Ring> ring(new Ring(std::move(core), std::bit_ceil(entries)));
    // Created at once, so that errors are reported here.
    if (ring->core_) ring->remote_ = TRY(RemoteRing::create(ring->core_, ring->entries()));
    return ring;
}

Ring::Ring(std::shared_ptr<Core> core, uint32_t entries)
    : core_(std::move(core)), pieces_(entries), operations_(entries) {
    for (uint32_t i = entries; i-- > 0;) {
        free_pieces_.push_back(i);
        free_operations_.push_back(i);
    }
}

Ring::~Ring() {
    if (!check_use()) {
        // A forked child has neither the threads nor the socket.
        for (auto& local : local_) (void)local.release();
        (void)remote_.release();
        return;
    }
    for (uint32_t token : std::exchange(prepared_, {})) finish(token, -ECANCELED, 0);
    while (begun_operations_ > 0) {
        gshm_completion completions[64];
        auto taken = wait(completions, 1, -1);
        if (taken) continue;
        // gshmd is gone, with its transfers.
        for (uint32_t token = 0; token < pieces_.size(); ++token) {
            if (pieces_[token].state == State::begun && pieces_[token].remote) finish(token, -ECONNRESET, 0);
        }
    }
    forget_objects();
}

// Releases them one by one, since gshmd takes a while to destroy a ring. The next seal of an object need not wait for
// that.
void Ring::forget_objects() {
    MutexLock lock(registry());
    for (auto* object : objects_) {
        remote_->release(*object);
        std::erase(object->rings, this);
    }
    objects_.clear();
}

Result<std::unique_ptr<Ring>> Ring::take(const std::shared_ptr<Core>& core, uint32_t entries) {
    auto ring = core ? core->take_ring(entries) : nullptr;
    if (!ring) return create(core, entries);
    ring->core_ = core;
    ring->remote_->set_core(core);
    return ring;
}

void Ring::put_aside(std::unique_ptr<Ring> ring) {
    if (!ring->core_ || !ring->check_use()) return;
    ring->forget_objects();
    ring->remote_->set_core(nullptr);
    auto core = std::exchange(ring->core_, nullptr);
    if (core->keep_ring(ring)) return;
    ring->core_ = core;  // enough are kept: this one is destroyed, and gshmd is told
    ring->remote_->set_core(core);
}

Result<uint32_t> Ring::add_file(int fd) {
    struct stat status = {};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &status) != 0) return fail_errno("the file");
    if ((flags & O_PATH) != 0) return fail(EBADF, "the file is not open for reading or writing");
    if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
        return fail(EINVAL, "neither a regular file nor a block device");
    }
    auto free = std::ranges::find_if(files_, [](const File& file) { return !file.fd; });
    if (free == files_.end() && files_.size() >= limits::kRingFiles) {
        return fail(EMFILE, "a ring has at most {} files", limits::kRingFiles);
    }
    auto copy = TRY(UniqueFd::clone(fd));
    if (free == files_.end()) free = files_.emplace(files_.end());
    free->fd = std::move(copy);
    free->mode = flags & O_ACCMODE;
    return static_cast<uint32_t>(free - files_.begin());
}

Status Ring::remove_file(uint32_t file) {
    if (file >= files_.size() || !files_[file].fd) return fail(EBADF, "the ring has no file {}", file);
    if (files_[file].pieces > 0) return fail(EBUSY, "transfers with the file are under way");
    if (remote_) remote_->forget_file(file);
    files_[file] = {};
    return {};
}

Status Ring::check(const gshm_io& io) const {
    const bool reads = io.operation == GSHM_IO_READ;
    if (!reads && io.operation != GSHM_IO_WRITE) return fail(EINVAL, "unknown operation {}", io.operation);
    if (io.flags != 0) return fail(EINVAL, "unknown flags {:#x}", io.flags);
    if (io.ranges == nullptr || io.range_count == 0) return fail(EINVAL, "an operation has one range at least");
    if (io.range_count > pieces_.size()) return fail(EINVAL, "more ranges than the ring has entries");
    if (io.file >= files_.size() || !files_[io.file].fd) return fail(EBADF, "the ring has no file {}", io.file);
    const int mode = files_[io.file].mode;
    if (mode == (reads ? O_WRONLY : O_RDONLY)) return fail(EBADF, "the file is not open for that");
    uint64_t at = io.file_offset;
    for (size_t i = 0; i < io.range_count; ++i) {
        const gshm_range& range = io.ranges[i];
        if (range.object == nullptr) return fail(EINVAL, "object is NULL");
        const gshm_object& object = *range.object;
        TRY(object.check_use());
        if (range.offset > object.size_bytes || range.bytes > object.size_bytes - range.offset) {
            return fail(EINVAL, "range {}+{} is outside of the object's {} bytes", range.offset, range.bytes,
                        object.size_bytes);
        }
        if (at > INT64_MAX || range.bytes > INT64_MAX - at) return fail(EINVAL, "beyond the end of any file");
        at += range.bytes;
        if (reads && object.sealed) return fail(EPERM, "the object is sealed and cannot be written");
        if (reads && object.access == Access::read) return fail(EACCES, "the object was opened for reading only");
        if (object.core && object.core != core_) return fail(EXDEV, "the object belongs to another connection");
    }
    if (io.range_count > free_pieces_.size()) return fail(EAGAIN, "the ring is full");
    return {};
}

void Ring::associate(gshm_object& object) {
    MutexLock lock(registry());
    if (objects_.insert(&object).second) object.rings.push_back(this);
}

void Ring::release(gshm_object& object) {
    MutexLock lock(registry());
    std::erase_if(object.rings, [&](Ring* ring) {
        const bool released = ring->remote_->release(object);
        if (released) ring->objects_.erase(&object);
        return released;
    });
}

Status Ring::prepare(const gshm_io& io) {
    TRY(check(io));
    const uint32_t index = free_operations_.back();
    free_operations_.pop_back();
    Operation& operation = operations_[index];
    operation = {io.user_data, kNone, static_cast<uint32_t>(io.range_count), false};
    uint32_t* link = &operation.first;
    uint64_t at = io.file_offset;
    for (size_t i = 0; i < io.range_count; ++i) {
        const gshm_range& range = io.ranges[i];
        const uint32_t token = free_pieces_.back();
        free_pieces_.pop_back();
        Piece& piece = pieces_[token];
        piece = {};
        piece.object = range.object;
        piece.remote = range.object->core != nullptr;
        piece.state = State::prepared;
        piece.operation = index;
        piece.entry = {io.operation, token, io.file, 0, at, range.offset, range.bytes, {}};
        hold_object(*range.object);
        ++files_[io.file].pieces;
        if (piece.remote) {
            bool is_new = false;
            piece.entry.object = remote_->hold(*range.object, io.operation == GSHM_IO_READ, &is_new);
            if (is_new) associate(*range.object);
        }
        *link = token;
        link = &piece.next;
        at += range.bytes;
        prepared_.push_back(token);
    }
    ++prepared_operations_;
    return {};
}

Result<LocalRing*> Ring::local(const gshm_object& object) {
    const auto kind = LocalRing::kind_of(*object.extent(), *object.local);
    auto& ring = local_[kind];
    if (!ring) ring = TRY(LocalRing::create(kind, *object.local, local_word_));
    return ring.get();
}

Status Ring::begin_local() {
    for (uint32_t token : prepared_) {
        Piece& piece = pieces_[token];
        if (piece.remote || piece.state != State::prepared) continue;
        File& file = files_[piece.entry.file];
        if (!file.local) file.local = TRY(io::File::create(TRY(UniqueFd::clone(file.fd.get()))));
        LocalRing* ring = TRY(local(*piece.object));
        Extent& memory = *piece.object->extent();
        piece.state = State::begun;
        ++local_pieces_;
        ring->push({token, piece.entry.operation == GSHM_IO_READ ? io::Direction::read : io::Direction::write,
                    file.local, piece.entry.file_offset,
                    memory.address() + piece.object->offset + piece.entry.object_offset, memory.copier(),
                    piece.entry.bytes});
    }
    return {};
}

Status Ring::push_remote(State state) {
    std::vector<uint32_t> tokens;
    std::vector<uint32_t> slots;
    auto add = [&](uint32_t token) {
        const Piece& piece = pieces_[token];
        if (!piece.remote || piece.state != state) return;
        tokens.push_back(token);
        slots.push_back(piece.entry.object);
    };
    if (state == State::prepared) {
        for (uint32_t token : prepared_) add(token);
    } else {
        for (uint32_t token = 0; token < pieces_.size(); ++token) add(token);
    }
    if (tokens.empty()) return {};
    std::unordered_map<uint32_t, Error> errors;
    TRY(remote_->announce(slots, errors));
    std::unordered_map<uint32_t, Error> file_errors;
    for (uint32_t token : tokens) {
        const uint32_t file = pieces_[token].entry.file;
        if (file_errors.contains(file)) continue;
        auto told = remote_->announce_file(file, files_[file].fd.get());
        if (!told && (told.error().code == ECONNRESET || told.error().code == ERESTART || !remote_->is_attached())) {
            return told;
        }
        if (!told) file_errors.emplace(file, told.error());
    }
    for (uint32_t token : tokens) {
        Piece& piece = pieces_[token];
        if (piece.state != State::begun) {
            piece.state = State::begun;
            ++remote_pieces_;
        }
        int error = 0;
        if (auto found = errors.find(piece.entry.object); found != errors.end()) error = found->second.code;
        else if (auto bad = file_errors.find(piece.entry.file); bad != file_errors.end()) error = bad->second.code;
        if (error != 0) finish(token, -error, 0);
        else remote_->producer().push(piece.entry);
    }
    remote_->producer().publish();
    return {};
}

Status Ring::follow() {
    if (!remote_->is_attached()) {
        // Completions of the previous gshmd are still valid.
        collect();
        TRY(remote_->attach());
        is_behind_ = true;
    }
    if (is_behind_) TRY(push_remote(State::begun));
    is_behind_ = false;
    return {};
}

// Repeats after a replacement of gshmd, since the next one knows nothing of this ring.
Status Ring::reach_daemon(State state) {
    for (int attempt = 0;; ++attempt) {
        auto reached = follow();
        if (reached && state == State::prepared) reached = push_remote(state);
        if (reached || attempt == DaemonConnection::kAttempts) return reached;
        const int code = reached.error().code;
        if (code != ECONNRESET && code != ERESTART && remote_->is_attached()) return reached;
    }
}

Result<size_t> Ring::submit() {
    if (prepared_operations_ == 0) return 0;
    if (remote_pieces_ == 0) heard_ = {};
    const bool has_remote = std::ranges::any_of(prepared_, [&](uint32_t token) { return pieces_[token].remote; });
    // Counted first, since some operations may complete while others begin.
    const size_t count = prepared_operations_;
    begun_operations_ += std::exchange(prepared_operations_, 0);
    for (uint32_t token : prepared_) operations_[pieces_[token].operation].begun = true;
    auto begun = has_remote ? reach_daemon(State::prepared) : Status{};
    if (begun) begun = begin_local();
    if (!begun) {
        // Operations that have not begun complete with the error, so that a wait for them ends.
        for (uint32_t token : prepared_) {
            if (pieces_[token].state == State::prepared) finish(token, -begun.error().code, 0);
        }
    }
    prepared_.clear();
    return count;
}

void Ring::finish(uint32_t token, int64_t result, uint32_t path) {
    Piece& piece = pieces_[token];
    if (piece.state == State::begun) --(piece.remote ? remote_pieces_ : local_pieces_);
    piece.state = State::done;
    piece.result = result;
    piece.path = path;
    --files_[piece.entry.file].pieces;
    if (piece.remote) remote_->let_go(piece.entry.object);
    let_go_of_object(std::exchange(piece.object, nullptr));
    if (--operations_[piece.operation].left == 0) finish_operation(piece.operation);
}

void Ring::finish_operation(uint32_t index) {
    gshm_completion completion = {operations_[index].user_data, 0, 0, 0};
    bool ended = false;  // at an error or at the end of the file
    for (uint32_t token = operations_[index].first; token != kNone;) {
        Piece& piece = pieces_[token];
        completion.path |= piece.path;
        if (!ended && piece.result < 0) {
            completion.result = piece.result;
            ended = true;
        } else if (!ended) {
            completion.result += piece.result;
            ended = static_cast<uint64_t>(piece.result) < piece.entry.bytes;
        } else if (piece.result < 0 && completion.result >= 0) {
            completion.result = piece.result;
        }
        piece.state = State::idle;
        free_pieces_.push_back(token);
        token = piece.next;
    }
    free_operations_.push_back(index);
    --(operations_[index].begun ? begun_operations_ : prepared_operations_);
    ready_.push_back(completion);
}

void Ring::collect() {
    ring::Completion completion;
    const size_t before = ready_.size();
    while (remote_pieces_ > 0 && remote_->producer().take(&completion)) {
        // The daemon is not trusted: invalid completions are ignored.
        if (completion.token >= pieces_.size()) continue;
        const Piece& piece = pieces_[completion.token];
        if (!piece.remote || piece.state != State::begun ||
            completion.result > static_cast<int64_t>(piece.entry.bytes)) {
            continue;
        }
        finish(completion.token, completion.result, completion.path);
    }
    for (auto& local : local_) {
        while (local && local->take(&completion)) finish(completion.token, completion.result, completion.path);
    }
    // Kept across waits, so that repeated waits shorter than kDoubt also notice a dead gshmd.
    if (ready_.size() != before) heard_ = Clock::now();
}

Ring::Nap Ring::fall_asleep(size_t missing) {
    Nap nap;
    const Awaited here = {&local_word_, local_word_.load(std::memory_order_acquire)};
    nap.over = woken_.load();
    if (remote_pieces_ > 0) {
        auto& producer = remote_->producer();
        // Every operation has at least one piece, so at least this many pieces are still to come.
        const size_t wanted = local_pieces_ > 0 ? 1 : std::min(missing, remote_pieces_);
        producer.announce(static_cast<uint32_t>(wanted));
        const uint32_t now = producer.word().load(std::memory_order_acquire);
        nap.over = nap.over || producer.available() >= wanted;
        nap.words[nap.count++] = {&producer.word(), now};
    }
    nap.words[nap.count++] = here;  // last: a kernel that can wait for only one word waits for the first
    // After reading the words: any later completion changes them.
    for (auto& local : local_) nap.over = nap.over || (local && local->has_completions());
    return nap;
}

void Ring::sleep(const Nap& nap, Clock::time_point until) {
    if (nap.over) return;
    const auto left = until - Clock::now();
    wait_for_any({nap.words.data(), nap.count},
                 std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), kDoubt));
}

void Ring::wake_up(const Nap& nap) {
    if (nap.count > 1) remote_->producer().withdraw();
}

void Ring::nudge() {
    local_word_.fetch_add(1);
    gshm::core::wake(local_word_);
}

bool Ring::abandon() {
    if (local_pieces_ > 0) return false;
    for (uint32_t token = 0; token < pieces_.size(); ++token) {
        if (pieces_[token].state == State::begun) finish(token, -ECANCELED, 0);
    }
    return true;
}

void Ring::wake() {
    woken_ = true;
    nudge();
}

Ring::Clock::time_point Ring::deadline(int timeout_ms) {
    return timeout_ms < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(timeout_ms);
}

Status Ring::look_for_daemon() {
    if (remote_pieces_ == 0) return {};
    const auto now = Clock::now();
    if (heard_ == Clock::time_point()) heard_ = now;
    if (now - heard_ < kDoubt && !remote_->producer().is_broken()) return {};
    TRY(remote_->look_for_daemon());
    TRY(reach_daemon(State::begun));
    heard_ = Clock::now();
    return {};
}

size_t Ring::take(std::span<gshm_completion> ret_completions) {
    size_t taken = 0;
    for (; taken < ret_completions.size() && !ready_.empty(); ++taken) {
        ret_completions[taken] = ready_.front();
        ready_.pop_front();
    }
    return taken;
}

Result<size_t> Ring::wait(std::span<gshm_completion> ret_completions, size_t least, int timeout_ms) {
    collect();
    if (least > ret_completions.size()) return fail(EINVAL, "there is no room for so many completions");
    if (least > ready() + under_way()) {
        return fail(EINVAL, "{} completions are awaited, and {} transfers are under way", least, ready() + under_way());
    }
    const auto until = deadline(timeout_ms);
    while (ready() < least) {
        if (Clock::now() >= until || take_wake()) break;
        TRY(look_for_daemon());
        if (ready() >= least) break;
        const auto nap = fall_asleep(least - ready());
        sleep(nap, until);
        wake_up(nap);
        collect();
    }
    return take(ret_completions);
}

}  // namespace gshm::core::client

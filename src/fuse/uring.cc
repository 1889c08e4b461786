#include "fuse/uring.h"

#include <algorithm>
#include <cassert>
#include <fstream>
#include <sched.h>

#include "base/guarded_copy.h"
#include "base/log.h"

namespace gshm::core::fuse {
namespace {

constexpr size_t kHeaderBytes = 4096;

// Several, so that a request that waits for a GPU does not delay a stat on the same processor. Few, since each is a
// thread with a buffer of a megabyte.
size_t entries_per_queue(size_t queues) {
    return std::clamp<size_t>(32 / queues, 1, 4);
}

// The exact number, since the kernel waits until each processor has an entry.
Result<size_t> possible_processors() {
    size_t last = 0;
    std::string text;
    std::getline(std::ifstream("/sys/devices/system/cpu/possible"), text);
    if (text == "0") return 1;
    if (sscanf(text.c_str(), "0-%zu", &last) != 1 || text != fmt::format("0-{}", last)) {
        return gshm::core::fail(ENOTSUP, "processors '{}' cannot be counted", text);
    }
    return last + 1;
}

}  // namespace

UringEntry::UringEntry(int fd, uint16_t queue, std::span<std::byte> memory)
    : fd_(fd),
      queue_(queue),
      memory_(memory),
      payload_(memory.subspan(kHeaderBytes)),
      parts_{{memory.data(), sizeof(UringHeader)}, {payload_.data(), payload_.size()}} {
    uring_.ring_fd = -1;
}

Result<std::unique_ptr<UringEntry>> UringEntry::create(int fd, uint16_t queue, std::span<std::byte> memory) {
    std::unique_ptr<UringEntry> entry(new UringEntry(fd, queue, memory));
    int made = io_uring_queue_init(1, &entry->uring_, IORING_SETUP_SQE128);
    if (made < 0) {
        entry->uring_.ring_fd = -1;
        return gshm::core::fail(-made, "no io_uring: {}", strerror(-made));
    }
    return entry;
}

UringEntry::~UringEntry() {
    if (uring_.ring_fd >= 0) io_uring_queue_exit(&uring_);
}

void UringEntry::prepare(uint32_t command, uint64_t commit_id) {
    io_uring_sqe* slot = io_uring_get_sqe(&uring_);  // never null: the previous one has completed
    io_uring_prep_rw(IORING_OP_URING_CMD, slot, fd_, nullptr, 0, 0);
    slot->cmd_op = command;
    if (command == kRingRegister) {
        slot->addr = reinterpret_cast<uint64_t>(parts_);
        slot->len = std::size(parts_);
    }
    const UringCommand body{0, commit_id, queue_, {}};
    memcpy(reinterpret_cast<std::byte*>(slot) + offsetof(io_uring_sqe, cmd), &body, sizeof body);
}

std::optional<int> UringEntry::completed() {
    io_uring_cqe* done = nullptr;
    if (io_uring_peek_cqe(&uring_, &done) != 0) return std::nullopt;
    int result = done->res;
    io_uring_cqe_seen(&uring_, done);
    return result;
}

Status UringEntry::enroll() {
    // The requests come from this processor. The sender leaves it free while it waits for the answer, and waking a
    // thread on another processor takes longer than most requests. A processor that is offline sends none.
    cpu_set_t* here = CPU_ALLOC(queue_ + 1u);
    CPU_ZERO_S(CPU_ALLOC_SIZE(queue_ + 1u), here);
    CPU_SET_S(queue_, CPU_ALLOC_SIZE(queue_ + 1u), here);
    sched_setaffinity(0, CPU_ALLOC_SIZE(queue_ + 1u), here);
    CPU_FREE(here);
    prepare(kRingRegister, 0);
    int submitted = io_uring_submit(&uring_);
    if (submitted < 0) return gshm::core::fail(-submitted, "io_uring: {}", strerror(-submitted));
    // A refusal completes at once, a success with the first request.
    io_uring_cqe* done = nullptr;
    if (io_uring_peek_cqe(&uring_, &done) != 0 || done->res >= 0) return {};
    return gshm::core::fail(-done->res, "the kernel refuses: {}", strerror(-done->res));
}

bool UringEntry::next(std::chrono::microseconds awake, const std::atomic<bool>& stopping) {
    std::optional<int> result;
    if (awake.count() > 0) {
        const auto sleep_at = std::chrono::steady_clock::now() + awake;
        io_uring_submit(&uring_);
        while (!(result = completed()) && std::chrono::steady_clock::now() < sleep_at) {
            sched_yield();  // the sender of the next request may need this core
        }
    }
    while (!result) {
        int waited = io_uring_submit_and_wait(&uring_, 1);
        result = completed();
        if (result) break;
        if (stopping) return false;
        if (waited < 0 && waited != -EINTR && waited != -EAGAIN && waited != -EBUSY) {
            log_error("waiting for the mount's requests: {}", strerror(-waited));
            return false;
        }
    }
    if (*result == 0) return true;
    // Unmounted, or cancelled with the thread's end.
    if (*result != -ENOTCONN && *result != -ECONNABORTED && *result != -ECANCELED) {
        log_error("an answer to the kernel was refused: {}", strerror(-*result));
    }
    return false;
}

Call UringEntry::take() {
    const auto& in = *reinterpret_cast<const fuse_in_header*>(header().in_out);
    size_t payload_bytes = std::min<size_t>(header().entry.payload_bytes, payload_.size());
    // The header has the total length.
    size_t others = sizeof in + payload_bytes;
    size_t argument_bytes = std::min<size_t>(in.len < others ? 0 : in.len - others, sizeof header().arguments);
    return Call(*this, in, std::span(header().arguments).first(argument_bytes), payload_.first(payload_bytes),
                payload_);
}

void UringEntry::send(std::span<const iovec> parts) {
    auto out = *static_cast<const fuse_out_header*>(parts[0].iov_base);
    size_t bytes = 0;
    for (const iovec& part : parts.subspan(1)) {
        assert(part.iov_len <= payload_.size() - bytes);
        std::byte* to = payload_.data() + bytes;
        // Bytes that were read are usually in place already. Otherwise they may be in a file that was truncated.
        if (part.iov_base != to && !guarded_copy(to, part.iov_base, part.iov_len)) {
            out.error = -EIO;
            bytes = 0;
            break;
        }
        bytes += part.iov_len;
    }
    out.len = static_cast<uint32_t>(sizeof out + bytes);
    memcpy(header().in_out, &out, sizeof out);
    header().entry.payload_bytes = static_cast<uint32_t>(bytes);
    prepare(kRingCommitAndFetch, header().entry.commit_id);
}

Result<std::unique_ptr<Uring>> Uring::create(Backend& backend, int fd, size_t payload_bytes) {
    auto queues = TRY(possible_processors());
    size_t count = queues * entries_per_queue(queues);
    size_t entry_bytes = kHeaderBytes + payload_bytes;
    std::unique_ptr<Uring> ring(new Uring(backend, count * entry_bytes));
    if (ring->memory_.bytes().empty()) return gshm::core::fail(ENOMEM, "no memory for its buffers");
    for (size_t i = 0; i < count; ++i) {
        auto memory = ring->memory_.bytes().subspan(i * entry_bytes, entry_bytes);
        ring->entries_.push_back(TRY(UringEntry::create(fd, static_cast<uint16_t>(i % queues), memory)));
    }
    return ring;
}

}  // namespace gshm::core::fuse

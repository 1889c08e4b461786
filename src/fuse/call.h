// One request of the kernel, and its answer. It is answered once, by the handler or else by the destructor.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <sys/uio.h>
#include <utility>
#include <vector>

#include "base/result.h"
#include "fuse/kernel.h"
#include "fuse/operation_counters.h"

namespace gshm::core::fuse {

// The destination of answers.
class Channel {
public:
    virtual ~Channel() = default;
    // The first part is the header.
    virtual void send(std::span<const iovec> parts) = 0;
};

// Called before an answer is sent, to record the changes of the request.
class Recording {
public:
    virtual ~Recording() = default;
    // 0, or the error to answer instead.
    virtual int before_answer(const fuse_in_header& request, int code, std::span<const std::byte> body) = 0;
};

// To the log, with the caller.
void log_failure(const fuse_in_header& request, std::string_view name, const Error& error);

class Call {
public:
    // `request` begins with the header and has the length given there. `scratch` is a buffer of the thread for data.
    Call(Channel& channel, std::span<const std::byte> request, std::span<std::byte> scratch)
        : Call(channel, *reinterpret_cast<const fuse_in_header*>(request.data()),
               request.subspan(sizeof(fuse_in_header)), {}, scratch) {}
    // The request after the header comes in two pieces; no part of it spans both. The payload and the scratch may be
    // the same memory: a request with a payload needs no scratch.
    Call(Channel& channel, const fuse_in_header& header, std::span<const std::byte> arguments,
         std::span<const std::byte> payload, std::span<std::byte> scratch)
        : channel_(channel), header_(header), rest_(arguments), payload_(payload), scratch_(scratch) {
        skip(0);
    }
    ~Call() {
        if (!answered_) fail(EIO);
        send();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void set_recording(Recording* recording) { recording_ = recording; }
    const fuse_in_header& header() const { return header_; }
    uint64_t node() const { return header_.nodeid; }

    // The next part of the request. EINVAL if the request is too short.
    template <typename Part>
    Result<const Part*> part() {
        if (rest_.size() < sizeof(Part)) return std::unexpected(Error{EINVAL, "a short request"});
        const auto* found = reinterpret_cast<const Part*>(rest_.data());
        skip(sizeof(Part));
        return found;
    }
    Result<std::string_view> text() {
        const void* end = rest_.empty() ? nullptr : memchr(rest_.data(), 0, rest_.size());
        if (end == nullptr) return std::unexpected(Error{EINVAL, "a text without an end"});
        std::string_view found(reinterpret_cast<const char*>(rest_.data()));
        skip(found.size() + 1);
        if (name_.empty()) name_ = found;
        return found;
    }
    // The rest of the current piece.
    std::span<const std::byte> rest() const { return rest_; }
    std::span<std::byte> scratch() const { return scratch_; }

    void succeed() { answer(0, {}); }
    void fail(int code) { fail(Error{code, {}}); }
    // The message is for the log.
    void fail(const Error& error) {
        if (!answered_) log_failure(header_, name_, error);
        answer(error.code, {});
    }
    void finish(const Status& status) { status ? succeed() : fail(status.error()); }
    template <typename Body>
    void reply(const Body& body) {
        answer(0, std::as_bytes(std::span(&body, 1)));
    }
    void reply_bytes(std::span<const std::byte> bytes) { answer(0, bytes); }
    void reply_text(std::string_view text) { answer(0, std::as_bytes(std::span(text))); }
    // For FORGET and other requests without an answer.
    void no_answer() { answered_ = true; }
    // Sends a small answer, which is held back until then: an answer that is sent under the store's lock wakes its
    // receiver, whose next request would wait for the lock.
    void send() {
        if (held_bytes_ > 0) send_parts(std::exchange(held_bytes_, 0));
    }

private:
    void skip(size_t bytes) {
        rest_ = rest_.subspan(bytes);
        if (rest_.empty()) rest_ = std::exchange(payload_, {});
    }
    void answer(int code, std::span<const std::byte> body) {
        if (std::exchange(answered_, true)) return;
        if (recording_ != nullptr) {
            if (int failed = recording_->before_answer(header_, code, body); failed != 0) {
                code = failed;
                body = {};
            }
        }
        OperationCounters::note(header_.opcode, code);
        fuse_out_header out = {};
        out.unique = header_.unique;
        out.error = -code;
        out.len = static_cast<uint32_t>(sizeof out + body.size());
        if (out.len > sizeof held_) {
            iovec parts[2] = {{&out, sizeof out}, {const_cast<std::byte*>(body.data()), body.size()}};
            return channel_.send(parts);
        }
        memcpy(held_, &out, sizeof out);
        if (!body.empty()) memcpy(held_ + sizeof out, body.data(), body.size());
        held_bytes_ = out.len;
    }
    void send_parts(uint32_t bytes) {
        constexpr size_t kHead = sizeof(fuse_out_header);
        iovec parts[2] = {{held_, kHead}, {held_ + kHead, bytes - kHead}};
        channel_.send({parts, bytes == kHead ? 1u : 2u});
    }

    Channel& channel_;
    const fuse_in_header header_;
    std::span<const std::byte> rest_;
    std::span<const std::byte> payload_;  // the piece after rest_
    std::span<std::byte> scratch_;
    Recording* recording_ = nullptr;
    std::string_view name_;  // the first text of the request; valid until the answer
    bool answered_ = false;
    uint32_t held_bytes_ = 0;
    alignas(8) std::byte held_[256];
};

}  // namespace gshm::core::fuse

#include "daemon/maker.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/spawn.h"
#include "daemon/process.h"
#include "wire/message.h"

namespace gshm::core {
namespace {

using maker::Kind;
using maker::Message;

// The start of the driver takes 0.25 s, and many seconds on a busy machine. A stopped process must not block gshmd for
// ever.
constexpr timeval kPatience{60, 0};
constexpr std::chrono::seconds kStartAgain{1};
constexpr const char* kProgram = "gshm-maker";

Message request(Kind kind) {
    Message message = {};
    message.kind = kind;
    return message;
}

Message request(Kind kind, const FabricHandle& handle) {
    Message message = request(kind);
    message.count = 1;
    message.handles[0] = handle;
    return message;
}

}  // namespace

MakerProcess::MakerProcess(EventLoop& loop, std::function<void(int)> keep) : loop_(loop), keep_(std::move(keep)) {}

Result<std::shared_ptr<MakerProcess>> MakerProcess::create(EventLoop& loop, UniqueFd socket,
                                                           std::function<void(int)> keep) {
    std::shared_ptr<MakerProcess> made(new MakerProcess(loop, std::move(keep)));
    TRY(made->begin(std::move(socket)));
    return made;
}

Status MakerProcess::begin(UniqueFd socket) {
    const bool found = static_cast<bool>(socket);
    {
        MutexLock talk(conversation_);
        uint64_t first = 0;
        if (getrandom(&first, sizeof first, 0) == sizeof first) number_ = first;
        if (found) {
            setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
            {
                MutexLock lock(mutex_);
                socket_ = std::move(socket);
            }
            auto listed = list();
            if (listed) return {};
            if (listed.error().code == EOPNOTSUPP) return fail(EPROTO, "{}", listed.error().message);
            log_warning("gshm-maker of the earlier gshmd cannot be used: {}; its fabric handles have ended",
                        listed.error().message);
            MutexLock lock(mutex_);
            handles_.clear();
            socket_.reset();
            kill_if_named(pid_, kProgram);
            pid_ = 0;
        }
    }
    start();
    return {};
}

void MakerProcess::start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return log_error("gshm-maker: {}; fabric handles end with gshmd", strerror(errno));
    }
    auto ours = UniqueFd::adopt(ends[0]);
    auto theirs = UniqueFd::adopt(ends[1]);
    for (int option : {SO_RCVTIMEO, SO_SNDTIMEO})
        setsockopt(ours.get(), SOL_SOCKET, option, &kPatience, sizeof kPatience);
    const int descriptors[] = {theirs.get()};
    auto started = spawn_apart(program_beside(kProgram), {kProgram}, descriptors);
    if (!started) return log_error("{}; fabric handles end with gshmd", started.error().message);
    keep_(ours.get());
    MutexLock talk(conversation_);
    pid_ = *started;
    is_child_ = true;
    MutexLock lock(mutex_);
    socket_ = std::move(ours);
}

Result<Message> MakerProcess::receive(int socket, Kind kind, UniqueFd* ret_fd) {
    for (;;) {
        Message answer = {};
        auto bytes = std::span(reinterpret_cast<uint8_t*>(&answer), sizeof answer);
        auto received = TRY(wire::receive_packet(socket, bytes, true));
        if (received.end) return fail(ECONNRESET, "it has ended");
        if (received.bytes == 0) return fail(ETIMEDOUT, "it does not answer");
        const bool whole = received.bytes >= maker::kHeadBytes && answer.count <= maker::kMostHandles &&
                           received.bytes == bytes_of(answer);
        if (!whole) return fail(EPROTO, "it answers something else");
        if (answer.number != number_) continue;  // an answer to a gshmd that has died
        if (answer.version > maker::kVersion) {
            return fail(EOPNOTSUPP,
                        "gshm-maker was started by a newer gshmd and speaks version {} of its protocol, this gshmd {}: "
                        "start the newer gshmd; nothing is lost",
                        answer.version, maker::kVersion);
        }
        if (answer.kind != kind) return fail(EPROTO, "it answers something else");
        pid_ = answer.pid;
        if (ret_fd != nullptr && !received.descriptors.empty()) *ret_fd = std::move(received.descriptors[0]);
        return answer;
    }
}

Result<Message> MakerProcess::ask(Message request, Kind answer, UniqueFd* ret_fd) {
    const int to = socket();
    if (to < 0) return fail(ECONNREFUSED, "there is no gshm-maker at the moment");
    request.number = ++number_;
    TRY(wire::send_packet(to, {reinterpret_cast<const uint8_t*>(&request), bytes_of(request)}, {}, true));
    return receive(to, answer, ret_fd);
}

Status MakerProcess::list() {
    Message answer = TRY(ask(request(Kind::list), Kind::handles));
    for (;;) {
        {
            MutexLock lock(mutex_);
            for (uint32_t i = 0; i < answer.count; ++i) handles_.insert(answer.handles[i]);
        }
        if (answer.count < maker::kMostHandles) return {};
        answer = TRY(receive(socket(), Kind::handles, nullptr));
    }
}

Result<FabricMaker::Made> MakerProcess::make(const Wanted& wanted) {
    Message message = request(Kind::make);
    message.size_bytes = wanted.size_bytes;
    message.handle_types = static_cast<uint32_t>(wanted.handle_types);
    message.compressible = wanted.compressible ? cuda::kMemCompressionGeneric : 0;
    message.rdma_capable = wanted.rdma_capable ? 1 : 0;
    memcpy(message.uuid.data(), wanted.device.bytes, message.uuid.size());
    MutexLock talk(conversation_);
    Made made;
    auto answer = ask(message, Kind::made, &made.fd);
    if (!answer) {
        // The descriptor was lost in this process (EMFILE). Only the new memory is released; gshm-maker stays.
        if (answer.error().code == EMFILE) release_unknown();
        else lose(answer.error().message);
        return std::unexpected(answer.error());
    }
    made.result = answer->result;
    if (made.result != cuda::kSuccess) return made;
    if (answer->count != 1 || !made.fd) {
        if (answer->count == 1) (void)ask(request(Kind::release, answer->handles[0]), Kind::released);
        return fail(EMFILE, "the descriptor of memory that gshm-maker has made did not come through");
    }
    made.handle = answer->handles[0];
    MutexLock lock(mutex_);
    handles_.insert(made.handle);
    return made;
}

void MakerProcess::release_unknown() {
    std::set<FabricHandle> known;
    {
        MutexLock lock(mutex_);
        known = handles_;
    }
    if (auto listed = list(); !listed) return lose(listed.error().message);
    std::set<FabricHandle> unknown;
    {
        MutexLock lock(mutex_);
        std::ranges::set_difference(handles_, known, std::inserter(unknown, unknown.end()));
        handles_ = known;
    }
    for (const auto& handle : unknown) (void)ask(request(Kind::release, handle), Kind::released);
}

void MakerProcess::release(const FabricHandle& handle) {
    {
        MutexLock lock(mutex_);
        if (!open_->load() || handles_.erase(handle) == 0) return;
    }
    MutexLock talk(conversation_);
    if (!open_->load()) return;
    if (auto done = ask(request(Kind::release, handle), Kind::released); !done) lose(done.error().message);
}

bool MakerProcess::holds(const FabricHandle& handle) {
    MutexLock lock(mutex_);
    if (!handles_.contains(handle)) return false;
    pollfd state{socket_.get(), 0, 0};
    return poll(&state, 1, 0) == 0 || (state.revents & (POLLHUP | POLLERR)) == 0;
}

void MakerProcess::release_others(const std::set<FabricHandle>& used) {
    std::vector<FabricHandle> others;
    {
        MutexLock lock(mutex_);
        for (const auto& handle : handles_) {
            if (!used.contains(handle)) others.push_back(handle);
        }
    }
    for (const auto& handle : others) release(handle);
}

void MakerProcess::lose(const std::string& why) {
    {
        MutexLock lock(mutex_);
        handles_.clear();
        if (!socket_ || !open_->load()) return;
        socket_.reset();
    }
    log_warning("gshm-maker is replaced: {}; the fabric handles of its memory have ended", why);
    kill_if_named(pid_, kProgram);
    if (std::exchange(is_child_, false)) waitpid(pid_, nullptr, 0);
    pid_ = 0;
    loop_.post([this, open = open_] {
        if (!open->load()) return;
        loop_.after(kStartAgain, [this, open] {
            if (open->load()) start();
        });
    });
}

int MakerProcess::socket() const {
    MutexLock lock(mutex_);
    return socket_.get();
}

void MakerProcess::close() {
    open_->store(false);
    MutexLock talk(conversation_);  // the next gshmd reads from the same socket
    MutexLock lock(mutex_);
    handles_.clear();
    socket_.reset();
}

}  // namespace gshm::core

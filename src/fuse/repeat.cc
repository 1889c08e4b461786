// Requests that the kernel sends again, because the daemon that had read them has ended. Idempotent requests are
// executed again. The others are recorded atomically with their effect, and are only answered when they come again.
#include <cstring>

#include "fuse/work.h"

namespace gshm::core::fuse {
namespace {

bool makes_node(uint32_t opcode) {
    switch (opcode) {
        case FUSE_MKDIR:
        case FUSE_MKNOD:
        case FUSE_SYMLINK:
        case FUSE_LINK: return true;
        default: return false;
    }
}

// CREATE and TMPFILE are marked when the file is made, before it is opened.
bool must_not_repeat(uint32_t opcode) {
    switch (opcode) {
        case FUSE_UNLINK:
        case FUSE_RMDIR:
        case FUSE_RENAME:
        case FUSE_RENAME2:
        case FUSE_SETXATTR:
        case FUSE_REMOVEXATTR: return true;
        default: return makes_node(opcode);
    }
}

bool changes_something(uint32_t opcode) {
    switch (opcode) {
        case FUSE_CREATE:
        case FUSE_TMPFILE:
        case FUSE_SETATTR: return true;
        default: return must_not_repeat(opcode);
    }
}

bool names_node(uint32_t opcode) {
    return makes_node(opcode) || opcode == FUSE_CREATE || opcode == FUSE_TMPFILE;
}

// Answered even while the last change, perhaps that of another client, cannot be recorded.
bool only_reads(uint32_t opcode) {
    switch (opcode) {
        case FUSE_LOOKUP:
        case FUSE_GETATTR:
        case FUSE_READLINK:
        case FUSE_OPEN:
        case FUSE_READ:
        case FUSE_LSEEK:
        case FUSE_STATFS:
        case FUSE_RELEASE:
        case FUSE_FLUSH:
        case FUSE_OPENDIR:
        case FUSE_READDIR:
        case FUSE_READDIRPLUS:
        case FUSE_RELEASEDIR:
        case FUSE_GETXATTR:
        case FUSE_LISTXATTR: return true;
        default: return false;
    }
}

// The answer that was refused to the present request of this thread; see before_answer().
struct Refused {
    NodeId node = 0;
    FileId file = 0;
};
thread_local Refused refused_answer;

}  // namespace

void FileSystem::mark(const fuse_in_header& request, NodeId node) {
    if (!resumable_) return;
    // A thread has answered a request before it takes the next.
    static thread_local uint64_t last = 0;
    const uint64_t number = request.unique & ~kResent;
    backend_.mark({number, node, std::exchange(last, number)});
}

int FileSystem::before_answer(const fuse_in_header& request, int code, std::span<const std::byte> body) {
    if (code == 0 && must_not_repeat(request.opcode)) {
        NodeId made = 0;
        if (makes_node(request.opcode)) {
            if (body.size() >= sizeof(fuse_entry_out))
                made = reinterpret_cast<const fuse_entry_out*>(body.data())->nodeid;
        }
        mark(request, made);
    }
    auto recorded = backend_.record();
    const bool refused = !recorded && code == 0 && !only_reads(request.opcode);
    // The kernel does not get this node and file: see take_back_refused().
    if (refused && body.size() >= sizeof(fuse_entry_out) && names_node(request.opcode)) {
        refused_answer.node = reinterpret_cast<const fuse_entry_out*>(body.data())->nodeid;
        auto rest = body.subspan(sizeof(fuse_entry_out));
        if (rest.size() >= sizeof(OpenOut)) memcpy(&refused_answer.file, rest.data(), sizeof refused_answer.file);
    }
    return refused ? recorded.error().code : 0;
}

void FileSystem::take_back_refused() {
    if (refused_answer.node == 0) return;
    StoreLock lock(backend_.store_mutex());
    if (refused_answer.file != 0) backend_.files().close(refused_answer.file);
    known_nodes().unhold(refused_answer.node);
    drop_backing_if_unknown(refused_answer.node);
    refused_answer = {};
}

bool FileSystem::answer_again(Call& call) {
    StoreLock lock(backend_.store_mutex());
    auto found = done_.find(call.header().unique & ~kResent);
    if (found == done_.end()) return false;
    const NodeId id = found->second;
    done_.erase(found);
    Node* node = id == 0 ? nullptr : backend_.files().find(id);
    const uint32_t opcode = call.header().opcode;
    if (opcode == FUSE_CREATE || opcode == FUSE_TMPFILE) {
        auto in = call.part<fuse_create_in>();
        auto* object = node == nullptr ? nullptr : as_object(node);
        if (!in || object == nullptr) call.fail(ESTALE);  // made, and removed by another client since
        else reply_created(call, lock, object, (*in)->flags);
    } else if (!makes_node(opcode)) {
        call.succeed();
    } else if (node == nullptr) {
        call.fail(ESTALE);  // likewise
    } else {
        reply_entry(call, *node);
    }
    return true;
}

void FileSystem::handle(Call& call) {
    if (IovFolder::has(call.node()) && call.header().opcode != FUSE_STATFS) {
        iovs_.handle(call);
        return call.send();
    }
    call.set_recording(this);
    if ((call.header().unique & kResent) != 0 && answer_again(call)) {
        call.send();
        return take_back_refused();
    }
    // No further change while the last one cannot be recorded.
    if (changes_something(call.header().opcode)) {
        if (auto recorded = backend_.record(); !recorded) return call.fail(recorded.error());
    }
    backend_.begin(call.header().uid);
    dispatch(call);
    call.send();
    take_back_refused();
    (void)backend_.record();  // requests without an answer may change the store, too
}

}  // namespace gshm::core::fuse

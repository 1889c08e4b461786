#include "daemon/fences.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "daemon/process.h"
#include "daemon/server.h"

namespace gshm::core {
namespace {

constexpr std::chrono::milliseconds kLookAgain{5};
// For the streams of a process that lives on after its session.
constexpr std::chrono::seconds kLivingPatience{60};
// For a process of another pid namespace, whose end is not seen.
constexpr std::chrono::seconds kUnseenPatience{5};

}  // namespace

// The fences of an ended session, until the promised generations are complete or the process is gone. The page must not
// change before: the GPU of a dying process may still write to it, and would overwrite the change.
struct Fences::Ending {
    SessionId session = 0;
    UniqueFd process;
    bool is_gone = false;
    std::chrono::steady_clock::time_point deadline;
    std::vector<std::weak_ptr<Fence>> fences;
};

Result<std::shared_ptr<Fences::Fence>> Fences::make(NodeId object, UniqueFd page, uid_t uid) {
    constexpr uint64_t kDescriptors = 2;  // for writing and for reading
    auto mapping = TRY(Mapping::create(page.get(), fence::kPageBytes, true));
    auto fence = std::make_shared<Fence>(survival_, object, std::move(page), std::move(mapping));
    const auto user = budgets_.user(uid);
    fence->charge = {user, Resource::fences};
    fence->charge.add(1);
    fence->descriptors = {user, Resource::descriptors};
    fence->descriptors.add(kDescriptors);
    survival_.keep_fence(object, fence->file.get());
    return fence;
}

void Fences::restore(Store& store) {
    for (auto& [id, page] : survival_.take_fences()) {
        auto fence = make(id, std::move(page), store.object(id)->uid);
        if (!fence) {
            log_error("the fence of object {} is lost: {}", id, fence.error().message);
            continue;
        }
        store.object(id)->daemon_state = *fence;
        // Clients can write to the page, so that it is no reason to refuse the start.
        if (auto known = fence::check_layout((*fence)->file.get()); !known) {
            log_warning("the fence of object {} is not used: {}", id, known.error().message);
            (*fence)->foreign = true;
            continue;
        }
        const auto view = (*fence)->view();
        if (view.writer() == fence::Writer::here || !view.is_settled()) add_writer(view.session(), *fence);
    }
    std::unordered_map<SessionId, pid_t> gone;
    for (const auto& [session, fences] : writers_) {
        if (store.has_session(session)) continue;
        // A living process may have ended its session with work still on its streams.
        const auto view = fences.front().lock()->view();
        gone[session] = process_lives(view.pid(), view.started()) ? view.pid() : -1;
    }
    for (auto [session, pid] : gone) end_session(session, pid);
}

void Fences::add_writer(SessionId session, const std::shared_ptr<Fence>& fence) {
    fence->writer = session;
    auto& fences = writers_[session];
    // Drops fences of deleted objects, so that a long session does not collect them.
    if (fences.size() == fences.capacity()) std::erase_if(fences, [](const auto& one) { return one.expired(); });
    fences.push_back(fence);
}

Result<int> Fences::open(Object& object, SessionId session, const Credentials& who, bool write, Access access) {
    auto fence = std::static_pointer_cast<Fence>(object.daemon_state);
    if (!fence) {
        auto& made = made_[session];
        if (!made) made = std::make_shared<size_t>(0);
        if (*made >= limits::kSessionFences) {
            return fail(EMFILE, "a session makes at most {} fences", limits::kSessionFences);
        }
        for (Resource kind : {Resource::fences, Resource::descriptors}) {
            const auto user = budgets_.user(who.uid);
            if (user->is_full(kind)) return std::unexpected(user->refusal(kind));
        }
        auto page = fence::make_page();
        if (!page) return std::unexpected(explain_descriptor_limit(page.error()));
        fence = TRY(make(object.id, std::move(*page), who.uid));
        ++*made;
        fence->made = made;
        object.daemon_state = fence;
    }
    if (fence->foreign) TRY(fence::check_layout(fence->file.get()));
    if (write) {
        if (fence->settling) return fail(EAGAIN, "the process that has published here is only just ending");
        if (fence->writer != session) {
            const auto view = fence->view();
            if (fence->writer != 0 && view.writer() == fence::Writer::here) {
                if (process_lives(view.pid(), view.started())) return fail(EBUSY, "another process publishes here");
                return fail(EAGAIN, "the process that has published here is only just ending");
            }
            // A previous writer may still have work on its streams, which must not complete after that of the next one.
            if (!fence->view().is_settled()) return fail(EAGAIN, "what was published before is not done yet");
            add_writer(session, fence);
        }
        fence->view().claim(session, who.pid, process_started(who.pid));
    }
    if (access == Access::write) return fence->file.get();
    if (!fence->read_only) {
        const auto path = fmt::format("/proc/self/fd/{}", fence->file.get());
        fence->read_only = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!fence->read_only) return fail_errno("cannot open a fence for reading");
    }
    return fence->read_only.get();
}

void Fences::end_session(SessionId session, pid_t pid) {
    made_.erase(session);
    auto found = writers_.find(session);
    if (found == writers_.end() || closed_) return;
    auto ending = std::make_shared<Ending>();
    ending->session = session;
    ending->fences = std::move(found->second);
    writers_.erase(found);
    // pid 0: in another pid namespace.
    if (pid > 0) ending->process = UniqueFd::adopt(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    ending->is_gone = pid < 0 || (pid > 0 && !ending->process && errno == ESRCH);
    ending->deadline = std::chrono::steady_clock::now() + (ending->process ? kLivingPatience : kUnseenPatience);
    for (const auto& one : ending->fences) {
        if (auto fence = one.lock(); fence && fence->writer == session) fence->settling = true;
    }
    settle(ending);
}

void Fences::settle(const std::shared_ptr<Ending>& ending) {
    if (closed_) return;
    pollfd process = {ending->process.get(), POLLIN, 0};
    const bool is_over = ending->is_gone || (ending->process && poll(&process, 1, 0) > 0) ||
                         std::chrono::steady_clock::now() >= ending->deadline;
    std::erase_if(ending->fences, [&](const auto& one) {
        auto fence = one.lock();
        if (!fence || fence->writer != ending->session) return true;
        const bool is_settled = fence->view().is_settled();
        if (!is_settled && !is_over) return false;
        if (is_settled) fence->view().retire();
        else fence->view().lose();
        fence->writer = 0;
        fence->settling = false;
        return true;
    });
    if (!ending->fences.empty()) loop_.after(kLookAgain, [this, ending] { settle(ending); });
}

}  // namespace gshm::core

// The fences of objects: creates their pages, records their writers, and wakes waiters when a writer is gone.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/loop.h"
#include "daemon/survival.h"
#include "fence/page.h"
#include "store/store.h"

namespace gshm::core {

class Fences {
public:
    Fences(EventLoop& loop, Survival& survival, Budgets& budgets)
        : loop_(loop), survival_(survival), budgets_(budgets) {}

    // Restores the fences of an earlier daemon, before the loop runs. Sessions that are not in the store have ended.
    void restore(Store& store) REQUIRES(store_lock);
    // The page of the object's fence, created if there is none. The descriptor is owned by the fence. write: the
    // session becomes the writer. EBUSY: another process is the writer. EAGAIN: the previous writer has left or is
    // ending, and its work may still complete. EMFILE: the session or its user has created the maximum of fences.
    Result<int> open(Object& object, SessionId session, const Credentials& who, bool write, Access access)
        REQUIRES(store_lock);
    // Called before the store ends the session.
    void end_session(SessionId session, pid_t pid) REQUIRES(store_lock);
    // gshmd ends: fences keep their writers.
    void close() { closed_ = true; }

private:
    struct Fence {
        Fence(Survival& of, NodeId id, UniqueFd page, Mapping mapped)
            : survival(of), object(id), file(std::move(page)), mapping(std::move(mapped)) {}
        ~Fence() {
            survival.drop_fence(object);
            if (made) --*made;
        }
        fence::View view() const { return fence::View(mapping); }

        Survival& survival;
        NodeId object;
        UniqueFd file;
        UniqueFd read_only;  // opened at first use
        Mapping mapping;
        bool foreign = false;  // its layout is unknown; kept for the next gshmd
        SessionId writer = 0;
        bool settling = false;         // the writer is gone; its queued work may still complete
        std::shared_ptr<size_t> made;  // number of fences of the session that created it
        Budgets::Charge charge;        // of the user that created it, or has the object
        Budgets::Charge descriptors;
    };
    struct Ending;

    Result<std::shared_ptr<Fence>> make(NodeId object, UniqueFd page, uid_t uid) REQUIRES(store_lock);
    void add_writer(SessionId session, const std::shared_ptr<Fence>& fence);
    void settle(const std::shared_ptr<Ending>& ending);

    EventLoop& loop_;
    Survival& survival_;
    Budgets& budgets_;
    bool closed_ = false;
    std::unordered_map<SessionId, std::vector<std::weak_ptr<Fence>>> writers_;
    std::unordered_map<SessionId, std::shared_ptr<size_t>> made_;
};

}  // namespace gshm::core

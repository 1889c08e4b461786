// The fences of objects: makes their pages, knows who publishes, and releases those who wait for somebody who is gone.
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
    Fences(EventLoop& loop, Survival& survival) : loop_(loop), survival_(survival) {}

    // Before the loop runs: those of an earlier daemon. Sessions that are not there any more have ended.
    void restore(Store& store) REQUIRES(store_lock);
    // The page of the object's fence, which is made if there is none; it stays the fence's. write: the session publishes
    // from now on. EBUSY: another does. EAGAIN: it is not clear yet whether another, which is gone, still does.
    // EMFILE: the session has made enough of them.
    Result<int> open(Object& object, SessionId session, const Credentials& who, bool write, Access access)
        REQUIRES(store_lock);
    // Before the store forgets the session, and what belongs to it.
    void end_session(SessionId session, pid_t pid) REQUIRES(store_lock);
    // gshmd ends: whoever publishes goes on with that.
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
        UniqueFd read_only;  // made when it is needed
        Mapping mapping;
        SessionId writer = 0;
        bool settling = false;  // the writer is gone; what it has on its way may still come
        std::shared_ptr<size_t> made;  // how many the session that has made it has
    };
    struct Ending;

    Result<std::shared_ptr<Fence>> make(NodeId object, UniqueFd page) REQUIRES(store_lock);
    void add_writer(SessionId session, const std::shared_ptr<Fence>& fence);
    void settle(const std::shared_ptr<Ending>& ending);

    EventLoop& loop_;
    Survival& survival_;
    bool closed_ = false;
    std::unordered_map<SessionId, std::vector<std::weak_ptr<Fence>>> writers_;
    std::unordered_map<SessionId, std::shared_ptr<size_t>> made_;
};

}  // namespace gshm::core

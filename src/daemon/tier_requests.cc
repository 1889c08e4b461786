// Requests for tiers: docs/tiers.md.
#include "daemon/server.h"
#include "daemon/session.h"

namespace gshm::core {

void Session::change_tier(uint64_t request, const wire::ChangeTier& change) {
    auto object = server_.store().find_movable(id_, wire::view(change.name()));
    if (!object) return reply_error(request, object.error());
    if (!server_.tiers().has_tier() && !(*object)->is_evicted()) {
        return reply_error(request, {EOPNOTSUPP, "gshmd was started without a tier (`--tier`)"});
    }
    auto answer = [self = weak_from_this(), request](Status status) {
        store_lock.assert_held();
        auto session = self.lock();
        if (!session) return;
        session->reply_change(request, status);
        session->job_ended();
    };
    job_started();
    if (change.demote()) return server_.tiers().demote(**object, std::move(answer));
    if (!(*object)->is_evicted()) return answer({});
    server_.tiers().bring_back(**object, std::move(answer));
}

Result<bool> Session::needs_return(const Object& object, bool any_device) const {
    if (!object.is_evicted() || (any_device && object.stored == 0)) return false;
    auto failed = no_own_memory_.find(object.id);
    if (failed != no_own_memory_.end()) return std::unexpected(failed->second);
    return true;
}

void Session::bring_back(std::vector<Object*> away, std::vector<Object*> all) {
    struct Batch {
        size_t missing = 0;
        std::unordered_map<NodeId, Error> failed;
        std::vector<Object*> held;
    };
    Store& store = server_.store();
    auto batch = std::make_shared<Batch>();
    batch->missing = away.size();
    batch->held = std::move(all);
    for (Object* object : batch->held) store.pin(object, Access::read);
    job_started();
    // The pins end after the request was served again, which takes leases.
    auto let_go = [&server = server_, batch] {
        store_lock.assert_held();
        for (Object* object : batch->held) server.store().unpin(object, Access::read);
        batch->held.clear();
        (void)server.commit();
    };
    auto again = [self = shared_from_this(), batch, let_go, since_ns = counted_later(),
                  copy = std::vector<uint8_t>(packet_.begin(), packet_.end())]() mutable {
        store_lock.assert_held();
        if (self->is_over()) return let_go();
        if (!batch->failed.empty() && self->server_.is_handing_over()) {
            // Nothing leaves a device for it any more. The request stays unanswered, and goes to the next gshmd. Should
            // the takeover fail, it is served here.
            constexpr std::chrono::seconds kTakeoverPatience{6};
            let_go();
            self->job_ended();
            self->server_.loop().after(kTakeoverPatience, [self, since_ns, copy = std::move(copy)]() mutable {
                store_lock.assert_held();
                if (self->is_over()) return;
                self->connection_->loop().post(
                    [self, since_ns, copy = std::move(copy)] { self->serve_again(copy, since_ns); });
            });
            return;
        }
        self->connection_->loop().post([self, batch, let_go, since_ns, copy = std::move(copy)]() mutable {
            StoreMutex& mutex = self->server_.loop().store_mutex();
            {
                StoreLock lock(mutex);
                if (self->is_over()) return let_go();
                self->job_ended();
                self->no_own_memory_ = std::move(batch->failed);
            }
            self->serve_again(copy, since_ns);
            StoreLock lock(mutex);
            let_go();
        });
    };
    auto shared = std::make_shared<decltype(again)>(std::move(again));
    for (Object* object : away) {
        server_.tiers().bring_back(*object, [batch, shared, id = object->id](Status status) {
            if (!status) batch->failed.emplace(id, status.error());
            if (--batch->missing == 0) (*shared)();
        });
    }
}

}  // namespace gshm::core

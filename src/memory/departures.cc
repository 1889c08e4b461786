#include "memory/departures.h"

#include <algorithm>
#include <future>
#include <utility>

namespace gshm::core {

class Departures::Wait {
public:
    DeviceIndex device = 0;
    Ticket until = 0;  // waits for departures with lower tickets
    std::vector<Ticket> moves;
    std::vector<NodeId> nameless;
    uint64_t freed = 0;
    bool tried = false;  // the request was repeated since the wait began
    bool last = false;   // for the last time: memory freed later is for other requests
    Scheduler::Time deadline;
    Scheduler::Time nameless_deadline;
    std::optional<Scheduler::TimerId> timer;
    Done done;
};

Departures::Ticket Departures::begin(DeviceIndex device, Kind kind, uint64_t bytes, uid_t uid) {
    devices_[device].departures.emplace(next_ticket_, Departure{kind, bytes, uid});
    if (kind == Kind::reclaim) devices_[device].piles[uid] += bytes;
    return next_ticket_++;
}

void Departures::end(DeviceIndex device, Ticket ticket, bool freed) {
    OfDevice& of = devices_[device];
    if (auto ended = of.departures.extract(ticket); !ended.empty() && ended.mapped().kind == Kind::reclaim) {
        auto pile = of.piles.find(ended.mapped().uid);
        // An empty pile is erased while further departures of no bytes are under way.
        if (pile != of.piles.end()) pile->second -= ended.mapped().bytes;
        if (pile != of.piles.end() && pile->second == 0) of.piles.erase(pile);
    }
    if (freed) this->freed(device);
    else look_later();
}

void Departures::freed(DeviceIndex device) {
    ++devices_[device].freed;
    look_later();
}

void Departures::look_later() {
    if (waiting() == 0) return;
    scheduler_.post([this] {
        store_lock.assert_held();
        look();
        look_at_piles();
    });
}

uint64_t Departures::coming_bytes(DeviceIndex device) const {
    uint64_t bytes = 0;
    for (const auto& [ticket, departure] : devices_[device].departures) bytes += departure.bytes;
    return bytes;
}

uint64_t Departures::pile_bytes(DeviceIndex device, uid_t uid) const {
    auto pile = devices_[device].piles.find(uid);
    return pile == devices_[device].piles.end() ? 0 : pile->second;
}

bool Departures::is_piled(DeviceIndex device, uid_t uid, uint64_t new_bytes) const {
    const uint64_t pile = pile_bytes(device, uid);
    return pile > kPileBytes && pile > store_.accounts().of(device, uid).object_bytes + new_bytes;
}

void Departures::wait_for_pile(DeviceIndex device, uid_t uid, uint64_t new_bytes, Scheduler::Task done) {
    if (given_up_ || !is_piled(device, uid, new_bytes)) return done();
    pile_waits_.push_back({device, uid, new_bytes, scheduler_.now() + kPatience, std::move(done)});
    scheduler_.after(kPatience, [this] {
        store_lock.assert_held();
        look_at_piles();
    });
}

void Departures::look_at_piles() {
    std::vector<Scheduler::Task> over;
    for (auto wait = pile_waits_.begin(); wait != pile_waits_.end();) {
        if (!given_up_ && scheduler_.now() < wait->deadline && is_piled(wait->device, wait->uid, wait->new_bytes)) {
            ++wait;
            continue;
        }
        over.push_back(std::move(wait->done));
        wait = pile_waits_.erase(wait);
    }
    for (auto& done : over) done();
}

bool Departures::is_worth_waiting(DeviceIndex device, uint64_t free_bytes, uid_t uid) const {
    if (is_piled(device, uid, 0)) return true;
    uint64_t bytes = coming_bytes(device);
    if (bytes + store_.use(device).unlinked_bytes <= free_bytes / 2) return false;
    for (const Object* object : store_.nameless(device)) bytes += object->size_bytes;
    return bytes > free_bytes / 2;
}

std::shared_ptr<Departures::Wait> Departures::wait(DeviceIndex device, NodeId waiting) {
    store_.extents().trim(device);
    auto wait = std::make_shared<Wait>();
    wait->device = device;
    wait->until = next_ticket_;
    for (const auto& [ticket, departure] : devices_[device].departures) {
        if (departure.kind == Kind::move) wait->moves.push_back(ticket);
    }
    for (const Object* object : store_.nameless(device)) {
        if (object->id != waiting) wait->nameless.push_back(object->id);
    }
    wait->freed = devices_[device].freed;
    wait->deadline = scheduler_.now() + kPatience;
    wait->nameless_deadline = scheduler_.now() + kNamelessPatience;
    return wait;
}

// Nothing is left to wait for, or the deadline has passed.
bool Departures::is_over(Wait& wait) {
    const auto now = scheduler_.now();
    if (given_up_ || now >= wait.deadline) return true;
    const auto& departures = devices_[wait.device].departures;
    size_t gone = std::erase_if(wait.moves, [&](Ticket ticket) { return !departures.contains(ticket); });
    gone += std::erase_if(wait.nameless, [this](NodeId id) {
        store_lock.assert_held();
        const Object* object = store_.object(id);
        return object == nullptr || !Store::is_nameless(*object);
    });
    // The reclaimer has their memory now.
    if (gone > 0) wait.until = next_ticket_;
    if (now >= wait.nameless_deadline) {
        for (NodeId id : wait.nameless) store_.object(id)->awaited = true;
        wait.nameless.clear();
    }
    return wait.nameless.empty() && (departures.empty() || departures.begin()->first >= wait.until);
}

void Departures::next(std::shared_ptr<Wait> wait, Done done) {
    wait->done = std::move(done);
    waits_.push_back(std::move(wait));
    look();
}

void Departures::look() {
    std::vector<std::pair<Done, bool>> answers;
    for (auto at = waits_.begin(); at != waits_.end();) {
        auto wait = *at;
        const bool over = is_over(*wait);
        const uint64_t freed = devices_[wait->device].freed;
        const bool changed = std::exchange(wait->freed, freed) != freed;
        if (wait->timer) scheduler_.cancel(*wait->timer);
        wait->timer.reset();
        if (!over && !changed) {
            const auto deadline = wait->nameless.empty() ? wait->deadline : wait->nameless_deadline;
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - scheduler_.now());
            wait->timer = scheduler_.after(std::max(left, std::chrono::milliseconds(1)), [this, wait] {
                store_lock.assert_held();
                wait->timer.reset();
                look();
            });
            ++at;
            continue;
        }
        at = waits_.erase(at);
        // At least once: memory may have been freed between the refusal and the start of the wait.
        const bool again = !given_up_ && !wait->last && (changed || !wait->tried);
        wait->tried = true;
        wait->last = over;
        answers.emplace_back(std::move(wait->done), again);
    }
    for (auto& [done, again] : answers) done(again);
}

void Departures::set_given_up(bool given_up) {
    given_up_ = given_up;
    look();
    look_at_piles();
}

bool Departures::Blocking::next() {
    if (departures_.has_given_up()) return false;
    // The promise is shared, since the loop may have ended and never run the task.
    auto answer = std::make_shared<std::promise<bool>>();
    auto answered = answer->get_future();
    scheduler_.post([&departures = departures_, wait = wait_, device = device_, waiting = waiting_, answer] {
        store_lock.assert_held();
        if (!*wait) *wait = departures.wait(device, waiting);
        departures.next(*wait, [answer](bool freed) { answer->set_value(freed); });
    });
    if (answered.wait_for(kPatience + std::chrono::seconds(1)) != std::future_status::ready) return false;
    return answered.get();
}

}  // namespace gshm::core

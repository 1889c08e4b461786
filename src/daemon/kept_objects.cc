#include "daemon/kept_objects.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "store/lifetimes.h"
#include "store/restore.h"

namespace gshm::core {
namespace {

constexpr size_t kAdoptedAtOnce = 1000;  // by one commit

}  // namespace

Status KeptObjects::adopt(const Commit& commit) {
    struct Found {
        TierFolder::Number number;
        std::string facts;
    };
    std::vector<Found> found;
    size_t adopted = 0;
    size_t left = 0;
    Restorer restorer(store_);
    auto take = [&](TierFolder::Number number, const std::string& bytes) -> Status {
        store_lock.assert_held();
        const auto facts = decode_kept_facts(bytes);
        const auto device = facts ? std::ranges::find(devices_, facts->device) : devices_.end();
        if (device == devices_.end()) {
            const std::string name = facts ? facts->names.front().path : "";
            log_error("\"{}\" stays in {}/{}: {}", name, folder_.path(), tier_file_name(number),
                      facts ? fmt::format("this gshmd has no device {}", facts->device) : facts.error().message);
            ++left;
            return {};
        }
        std::string lost;
        const auto home = static_cast<DeviceIndex>(device - devices_.begin());
        const Object* object = restorer.adopt(*facts, home, number, &lost);
        if (!lost.empty())
            log_warning("\"{}\" exists, or its directories have other rights: the kept object is \"{}\"", lost,
                        Tree::path_of(*object));
        changed_.insert(object->id);
        if (++adopted % kAdoptedAtOnce == 0) return commit();
        return {};
    };
    Status taken;
    folder_.kept([&](TierFolder::Number number, const std::string& facts) {
        store_lock.assert_held();
        if (taken) taken = take(number, facts);
    });
    TRY(std::move(taken));
    // Facts that a killed gshmd has not written: those of its last changes.
    for (const Object* object : store_.stored_objects()) changed_.insert(object->id);
    TRY(commit());
    write();
    if (adopted > 0 || left > 0) log_info("{}: {} kept objects are back, {} stay there", folder_.path(), adopted, left);
    return {};
}

void KeptObjects::changed(const Node& node) {
    if (node.kind == NodeKind::object) {
        if (static_cast<const Object&>(node).stored != 0) changed_.insert(node.id);
        return;
    }
    if (node.kind != NodeKind::directory || !ways_.contains(node.id)) return;
    changed_.insert(node.id);
}

void KeptObjects::erased(const Node& node) {
    changed_.erase(node.id);
    ways_.erase(node.id);
}

std::string KeptObjects::way_of(const Directory& directory) {
    const auto rights = kept_directory(directory);
    const NodeId parent = directory.parent() == nullptr ? 0 : directory.parent()->id;
    return fmt::format("{} {} {} {} {} {}/{}", rights.mode, rights.uid, rights.gid, rights.implicit, parent,
                       directory.first_link.name, rights.acl);
}

void KeptObjects::note_ways(const Object& object) {
    auto note = [&](const Link& link) {
        store_lock.assert_held();
        for (const Directory* at = link.parent; at != nullptr && !ways_.contains(at->id); at = at->parent())
            ways_.emplace(at->id, Way{at, way_of(*at)});
    };
    note(object.first_link);
    for (const auto& link : object.further_links) note(*link);
}

void KeptObjects::change_below(const Directory& directory) {
    std::vector<const Directory*> rest{&directory};
    while (!rest.empty()) {
        const Directory* at = rest.back();
        rest.pop_back();
        uint64_t cookie = 0;
        for (const Link* link : at->order.after(0, SIZE_MAX, &cookie)) {
            if (const auto* below = as_directory(link->node)) rest.push_back(below);
            else if (const auto* object = as_object(link->node); object != nullptr && object->stored != 0)
                changed_.insert(object->id);
        }
    }
}

void KeptObjects::write() {
    if (changed_.empty()) return;
    const SystemClock clock;
    std::vector<Way*> ways;
    for (const NodeId id : changed_)
        if (auto way = ways_.find(id); way != ways_.end()) ways.push_back(&way->second);
    for (Way* way : ways) {
        changed_.erase(way->directory->id);
        std::string now = way_of(*way->directory);
        if (way->text == now) continue;
        way->text = std::move(now);
        change_below(*way->directory);
    }
    for (const NodeId id : std::exchange(changed_, {})) {
        const Object* object = store_.object(id);
        // Objects that are reclaimed with their maker do not outlive this machine's processes.
        if (object == nullptr || object->stored == 0 || object->links == 0 || object->creator != 0) continue;
        note_ways(*object);
        KeptFacts facts = kept_facts(*object, devices_[object->home()]);
        if (object->lifetime != nullptr && object->lifetime->ttl_ns > 0) {
            // The time since the machine's start means nothing after the next one.
            facts.ttl_ns = object->lifetime->ttl_ns;
            facts.ttl_from_ns = clock.now_ns() - (clock.steady_ns() - object->lifetime->from_ns);
        }
        folder_.set_facts(object->stored, encode_kept_facts(facts));
    }
}

}  // namespace gshm::core

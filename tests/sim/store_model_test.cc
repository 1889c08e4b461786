// Why this file is long: the model and the random calls on it are one test.
// The store against a plain reference model: both get the same random calls and must give the same results. Bytes,
// places and counts are checked as well. A failing seed is printed; GSHM_SIM_SEED runs only that one, GSHM_SIM_SEEDS
// sets the number of seeds.
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/name.h"
#include "base/size.h"
#include "store/evictables.h"
#include "store/lifetimes.h"
#include "support/recount.h"
#include "support/store_rig.h"

namespace gshm::core::test {
namespace {

struct ModelObject {
    uid_t uid = 0;
    unsigned mode = 0;
    uint64_t size = 0;
    bool sealed = false;
    bool named = true;
    SessionId creator = 0;
    std::map<SessionId, std::pair<int, int>> leases;  // readers, writers
    std::map<std::string, std::string> attributes;
    bool ephemeral = false;
    int64_t ttl = 0;
    bool ttl_unused = false;
    int64_t from = 0;
    enum class Pin { none, owner, admin } pin = Pin::none;
    bool evictable = false;
    DeviceIndex home = 0;
    enum class Where { home, host, folder } where = Where::home;
    ReclaimReason reclaim = ReclaimReason::unlinked;
    std::vector<std::pair<DeviceIndex, uint64_t>> former;  // memory that its holders keep

    DeviceIndex place() const { return where == Where::home ? home : 1; }
    bool may_leave() const { return named && pin == Pin::none && !held(); }
    bool is_evicted() const { return where != Where::home; }
    bool is_over(int64_t now) const {
        return named && ttl != 0 && pin == Pin::none && !(ttl_unused && held()) && from + ttl <= now;
    }
    void use(int64_t now) {
        if (ttl_unused) from = now;
    }
    void lose_name() {
        named = false;
        pin = Pin::none;
    }
    void seal() {
        sealed = true;
        if (!ephemeral) creator = 0;
    }
    bool held() const {
        for (const auto& [session, counts] : leases) {
            if (counts.first + counts.second > 0) return true;
        }
        return false;
    }
    int writers_besides(SessionId session) const {
        int writers = 0;
        for (const auto& [other, counts] : leases) writers += other == session ? 0 : counts.second;
        return writers;
    }
};

// All directories are implicit here: one exists if a name goes through it. Its owner is the user who made it.
class Model {
public:
    std::map<SessionId, uid_t> sessions;
    std::map<NodeId, ModelObject> objects;
    std::map<std::string, NodeId> names;
    std::map<std::string, uid_t> directories;
    // By device: memory that was given back, and the evictions to the host and to the folder.
    std::array<std::array<uint64_t, kReclaimReasons>, 2> reclaimed = {};
    std::array<std::array<uint64_t, 2>, 2> evictions = {};

    void reclaim(DeviceIndex device, ReclaimReason reason, uint64_t bytes) {
        reclaimed[device][static_cast<size_t>(reason)] += bytes;
    }

    static bool may(uid_t who, uid_t owner, unsigned mode, unsigned rights) {
        if (who == 0) return true;
        unsigned granted = who == owner ? mode >> 6 : mode;  // every user has a separate group
        return (granted & rights) == rights;
    }
    // The errno of looking a name up as an object.
    int find(const std::string& name) const {
        if (names.contains(name)) return 0;
        if (directories.contains(name)) return EISDIR;
        return blocked_by_object(name) ? ENOTDIR : ENOENT;
    }
    bool blocked_by_object(const std::string& name) const {
        for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
            if (names.contains(name.substr(0, slash))) return true;
        }
        return false;
    }
    // The deepest existing directory above a name; "" for the root, which is sticky.
    std::string parent(const std::string& name) const {
        for (size_t slash = name.rfind('/'); slash != std::string::npos && slash > 0;
             slash = name.rfind('/', slash - 1)) {
            if (directories.contains(name.substr(0, slash))) return name.substr(0, slash);
        }
        return "";
    }
    bool may_write_in(const std::string& directory, uid_t who) const {
        return directory.empty() || who == 0 || directories.at(directory) == who;
    }
    // The errno of removing a name: all users may write in the root, but it is sticky.
    int check_remove(const std::string& name, uid_t who) const {
        size_t slash = name.rfind('/');
        std::string directory = slash == std::string::npos ? "" : name.substr(0, slash);
        if (!may_write_in(directory, who)) return EACCES;
        uid_t owner = names.contains(name) ? objects.at(names.at(name)).uid : directories.at(name);
        if (directory.empty() && who != 0 && who != owner) return EPERM;
        return 0;
    }
    void add_name(const std::string& name, NodeId id, uid_t who) {
        for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
            directories.emplace(name.substr(0, slash), who);
        }
        names[name] = id;
    }
    void prune() {
        std::erase_if(directories, [&](const auto& entry) {
            auto below = names.lower_bound(entry.first + "/");
            return below == names.end() || !below->first.starts_with(entry.first + "/");
        });
    }
    void remove_name(const std::string& name) {
        auto found = names.find(name);
        objects.at(found->second).lose_name();
        NodeId id = found->second;
        names.erase(found);
        prune();
        free_if_unused(id);
    }
    void free_if_unused(NodeId id) {
        auto found = objects.find(id);
        ModelObject& object = found->second;
        if (object.held()) return;
        for (const auto& [device, bytes] : std::exchange(object.former, {})) {
            reclaim(device, ReclaimReason::unlinked, bytes);
        }
        if (object.named) return;
        if (object.where != ModelObject::Where::folder) reclaim(object.place(), object.reclaim, object.size);
        objects.erase(found);
    }
    void end_session(SessionId session, int64_t now) {
        std::vector<NodeId> ids;
        for (auto& [id, object] : objects) {
            const auto mine = object.leases.find(session);
            if (mine != object.leases.end() && mine->second.first + mine->second.second > 0) object.use(now);
            object.leases.erase(session);
            ids.push_back(id);
            if (object.creator != session) continue;
            object.creator = 0;
            object.reclaim = ReclaimReason::client_died;
            if (object.named) {
                std::erase_if(names, [&](const auto& entry) { return entry.second == id; });
                object.lose_name();
            }
        }
        prune();
        for (NodeId id : ids) free_if_unused(id);
        sessions.erase(session);
    }
    // What has expired by now goes.
    void expire(int64_t now) {
        std::vector<NodeId> over;
        for (const auto& [id, object] : objects) {
            if (object.is_over(now)) over.push_back(id);
        }
        for (NodeId id : over) {
            std::erase_if(names, [&](const auto& entry) { return entry.second == id; });
            objects.at(id).lose_name();
            objects.at(id).reclaim = ReclaimReason::ttl;
        }
        prune();
        for (NodeId id : over) free_if_unused(id);
    }
};

class Simulation {
public:
    // limited: with limits on users, groups and directories, which change at random. A call that is refused must change
    // nothing; all other calls have the results that they have without limits.
    explicit Simulation(unsigned seed, bool limited = false) : random_(seed), limited_(limited) {}

    void go(int steps) {
        for (int i = 0; i < 3; ++i) begin_session();
        for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
            SCOPED_TRACE("step " + std::to_string(step));
            one();
            expect_true_accounts(rig_.store);
            if (limited_) expect_no_limit_exceeded(rig_.store);
            if (step % 64 == 0) check_everything();
        }
        while (!model_.sessions.empty()) end_session(model_.sessions.begin()->first);
        check_everything();
        // The remaining objects are named, and kept or sealed. After root removes them, nothing is left.
        SessionId root = rig_.store.begin_session({0, 0, 1, {}});
        model_.sessions[root] = 0;
        while (!model_.names.empty()) {
            std::string name = model_.names.begin()->first;
            ASSERT_TRUE(rig_.store.unlink(root, name));
            model_.remove_name(name);
        }
        rig_.store.extents().trim(0);
        rig_.store.extents().trim(1);
        check_counts();
        EXPECT_EQ(rig_.store.object_count(), 0u);
        EXPECT_EQ(rig_.store.extents().count(), 0u);
        EXPECT_EQ(rig_.first.live() + rig_.second.live(), 0u);
        EXPECT_EQ(rig_.store.use(0), Account{});
        EXPECT_EQ(rig_.store.use(1), Account{});
        EXPECT_TRUE(rig_.store.accounts().users(0).empty() && rig_.store.accounts().users(1).empty());
    }

private:
    unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }
    SessionId some_session() {
        return std::next(model_.sessions.begin(), below(static_cast<unsigned>(model_.sessions.size())))->first;
    }
    std::string some_name() {
        static const char* const parts[] = {"a", "b", "c", "d"};
        std::string name = parts[below(4)];
        for (unsigned depth = below(3); depth > 0; --depth) name += std::string("/") + parts[below(4)];
        return name;
    }
    uid_t uid(SessionId session) const { return model_.sessions.at(session); }

    void begin_session() {
        uid_t who = below(4) == 0 ? 0 : 1000 + below(2);
        model_.sessions[rig_.store.begin_session({who, who, static_cast<pid_t>(100 + below(1000)), {}})] = who;
    }
    void end_session(SessionId session) {
        rig_.store.end_session(session);
        model_.end_session(session, now());
    }
    int64_t now() const { return rig_.clock.steady_ns(); }

    // A limit of what is used now, or a little more.
    void set_limit() {
        AccountLimits& limits = rig_.store.limits();
        const DeviceIndex device = below(3) == 0 ? Limit::kAll : below(2);
        auto values = [&](const LimitUse& use) {
            return LimitValues{use.bytes + below(200'000) + 1, 0, use.objects + below(6) + 1, 0, 0};
        };
        const bool ends = below(3) == 0;
        const uint32_t id = 1000 + below(2);
        switch (below(3)) {
            case 0:
                return limits.set(LimitKind::user, id, device, 31,
                                  ends ? LimitValues{} : values(limits.user_use(id, device)));
            case 1:
                return limits.set(LimitKind::group, id, device, 31,
                                  ends ? LimitValues{} : values(limits.group_use(id, device)));
            default: break;
        }
        const std::string name = some_name();
        if (!model_.directories.contains(name)) return;
        SessionId root = rig_.store.begin_session({0, 0, 1, {}});
        Files files(rig_.store);
        auto& directory = *static_cast<Directory*>(files.find((*rig_.store.stat(root, name))->id));
        rig_.store.end_session(root);
        const bool implicit = directory.implicit;
        // Counted first, so that the limit is not below the use.
        limits.set(directory, device, kLimitBytes, {.bytes = UINT64_MAX});
        while (limits.count_some(2)) {}
        limits.set(directory, device, 31,
                   ends ? LimitValues{} : values(AccountLimits::tree_use(*directory.account, device)));
        directory.implicit = implicit;  // the model knows no others
    }
    // The refusal of a limit, for which the model has no rule: nothing may have changed.
    bool is_refused(int code) const { return limited_ && code == EDQUOT; }

    void one() {
        if (limited_ && below(8) == 0) return set_limit();
        switch (below(25)) {
            case 0: return below(2) == 0 || model_.sessions.size() < 2 ? begin_session() : end_session(some_session());
            case 1:
            case 2:
            case 3:
            case 4: return create();
            case 5:
            case 6: return open();
            case 7:
            case 8: return release();
            case 9: return seal();
            case 10: return unlink();
            case 11: return rename();
            case 12: return attribute();
            case 13: return replace();
            case 14: return change_owner();
            case 15: return grow();
            case 16: return move();
            case 17: return pass();
            case 18: return set_ttl();
            case 19: return pin();
            case 20: return mark();
            case 21: return demote();
            case 22: return make_room();
            case 23: return promote();
            default: return list();
        }
    }

    void create() {
        SessionId session = some_session();
        std::string name = some_name();
        uint64_t size = below(8) == 0 ? (1 << 20) + below(1 << 20) : 1 + below(60000);
        static const uint16_t modes[] = {0600, 0644, 0666, 0400};
        uint16_t mode = modes[below(4)];
        uint32_t flags = (below(3) == 0 ? kCreateKeep : 0u) | (below(6) == 0 ? kCreateDedicated : 0u);
        if (below(4) == 0) flags |= kCreateEphemeral;
        const int64_t ttl = below(3) == 0 ? 1 + below(300) : 0;
        if (below(8) == 0) flags |= kCreateTtlUnused;
        if (below(2) == 0) flags |= kCreateEvictable;
        bool unnamed = below(4) == 0;
        if (unnamed) flags |= kCreateUnnamed;
        int expected = 0;
        if ((flags & kCreateEphemeral) != 0 && (flags & kCreateKeep) != 0) expected = EINVAL;
        else if ((flags & kCreateTtlUnused) != 0 && ttl == 0) expected = EINVAL;
        else if (unnamed && (flags & kCreateKeep) != 0) expected = EINVAL;
        else if (unnamed) expected = check_put(name, uid(session));
        else if (model_.blocked_by_object(name)) expected = ENOTDIR;
        else if (model_.names.contains(name) || model_.directories.contains(name)) expected = EEXIST;
        else if (!model_.may_write_in(model_.parent(name), uid(session))) expected = EACCES;
        const DeviceIndex device = below(4) == 0 ? 1 : 0;
        CreateSpec spec{name, size, device, mode, flags, nullptr, nullptr};
        spec.ttl_ns = ttl;
        auto made = rig_.create(session, spec);
        if (expected == 0 && is_refused(code_of(made))) return;
        ASSERT_EQ(code_of(made), expected) << "create " << name;
        if (!made) return;
        Object* object = *made;
        std::vector<std::byte> bytes(size);
        ASSERT_TRUE(object->extent->memory->copy_out(object->offset, bytes));
        ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }))
            << "new memory is not zero";
        ASSERT_TRUE(object->extent->memory->fill(object->offset, size, pattern(object->id)));
        ModelObject model{uid(session), mode, size, false, true, (flags & kCreateKeep) != 0 ? 0 : session, {}, {}};
        model.leases[session].second = 1;
        model.named = !unnamed;
        model.evictable = (flags & kCreateEvictable) != 0;
        model.home = device;
        model.ephemeral = (flags & kCreateEphemeral) != 0;
        model.ttl = ttl;
        model.ttl_unused = (flags & kCreateTtlUnused) != 0;
        model.from = now();
        model_.objects[object->id] = model;
        if (!unnamed) model_.add_name(name, object->id, uid(session));
    }

    void change_owner() {
        SessionId session = some_session();
        std::string name = some_name();
        const uid_t to = 1000 + below(2);
        int expected = model_.find(name);
        if (expected == EISDIR) return;
        if (expected == 0 && uid(session) != 0) expected = EPERM;
        const int changed = code_of(rig_.store.change(session, name, {kChangeOwner, 0, to, to}));
        if (expected == 0 && is_refused(changed)) return;
        ASSERT_EQ(changed, expected) << "chown " << name;
        if (expected != 0) return;
        ModelObject& object = model_.objects.at(model_.names.at(name));
        if (object.pin == ModelObject::Pin::owner && object.uid != to) object.pin = ModelObject::Pin::admin;
        object.uid = to;
    }

    // Time passes, and the timer's work is done, perhaps in parts.
    void pass() {
        rig_.clock.advance(below(100));
        expire();
    }
    void expire() {
        while (rig_.store.lifetimes().expire(1 + below(8))) {}
        model_.expire(now());
    }

    void set_ttl() {
        SessionId session = some_session();
        std::string name = some_name();
        const int64_t ttl = below(4) == 0 ? 0 : 1 + below(300);
        const bool unused = below(2) == 0;
        int expected = model_.find(name);
        ModelObject* object = expected == 0 ? &model_.objects.at(model_.names.at(name)) : nullptr;
        if (object != nullptr && uid(session) != 0 && uid(session) != object->uid) expected = EPERM;
        ASSERT_EQ(code_of(rig_.store.change(session, name, {kChangeTtl, 0, 0, 0, ttl, unused})), expected);
        if (expected != 0) return;
        object->ttl = ttl;
        object->ttl_unused = unused && ttl != 0;
        object->from = now();
    }

    void pin() {
        using Pin = ModelObject::Pin;
        SessionId session = some_session();
        std::string name = some_name();
        const bool wanted = below(2) == 0;
        const bool admin = uid(session) == 0;
        int expected = model_.find(name);
        ModelObject* object = expected == 0 ? &model_.objects.at(model_.names.at(name)) : nullptr;
        if (object != nullptr && !admin) {
            if (uid(session) != object->uid || (!wanted && object->pin == Pin::admin)) expected = EPERM;
        }
        ASSERT_EQ(code_of(rig_.store.change(session, name, {.what = wanted ? kChangePin : kChangeUnpin})), expected);
        if (expected != 0) return;
        if (!wanted) object->pin = Pin::none;
        else if (admin) object->pin = Pin::admin;
        else if (object->pin == Pin::none) object->pin = Pin::owner;
        expire();  // its time may have passed
    }

    // As the mount does: new memory, while sessions keep the old.
    void grow() {
        if (model_.objects.empty()) return;
        auto& [id, model] = *std::next(model_.objects.begin(), below(static_cast<unsigned>(model_.objects.size())));
        if (model.sealed) return;
        Object* object = rig_.store.object(id);
        if (!is_back(*object)) return;
        const uint64_t size = 1 + below(200000);
        auto& device = object->device == 0 ? rig_.first : rig_.second;
        AccountLimits& limits = rig_.store.limits();
        auto growth = limits.begin_growth(*object, size);
        if (is_refused(code_of(growth))) return;
        ASSERT_TRUE(growth);
        auto end = [&, promised = *growth] {
            if (promised) limits.end_growth(*object);
        };
        if (object->session_leases > 0 && is_refused(code_of(limits.check_former(*object)))) return end();
        std::shared_ptr<Extent> memory = *device.allocate(round_up(size, device.info().granularity_bytes), {});
        ASSERT_TRUE(memory->fill(0, size, pattern(id)));
        Files(rig_.store).replace_memory(*object, std::move(memory), size);
        end();
        if (model.held()) model.former.emplace_back(object->device, model.size);
        model.size = size;
    }

    // To the other device, as memory/move.h does.
    void move() {
        if (model_.objects.empty()) return;
        auto& [id, model] = *std::next(model_.objects.begin(), below(static_cast<unsigned>(model_.objects.size())));
        Object* object = rig_.store.object(id);
        if (!is_back(*object)) return;
        const DeviceIndex to = 1 - object->device;
        const bool keep = below(2) == 0;
        bool written = false;
        for (const auto& [session, counts] : model.leases) written |= counts.second > 0;
        int expected = 0;
        if (!keep && model.held()) expected = EBUSY;
        if (keep && !model.sealed && written) expected = EBUSY;
        ASSERT_EQ(code_of(rig_.store.check_move(*object, to, keep)), expected);
        if (expected != 0) return;
        const Place place = place_on(*object, to);
        // The place is free, and a cancelled move leaves no bytes there.
        ASSERT_TRUE(place.extent->memory->copy_from(place.offset, *object->extent->memory, object->offset, model.size));
        if (below(4) == 0) return give_back(*object, place);
        if (is_refused(code_of(rig_.store.limits().check_device(*object, to, object->session_leases > 0)))) {
            return give_back(*object, place);
        }
        rig_.store.move(object, to, place, object->session_leases > 0);
        ASSERT_EQ(object->device, to);
        if (model.held()) model.former.emplace_back(model.home, model.size);
        model.home = to;
    }
    Place place_on(const Object& object, DeviceIndex to) {
        auto& device = to == 0 ? rig_.first : rig_.second;
        for (;;) {
            auto placed = rig_.store.place_elsewhere(object, to);
            if (auto* found = std::get_if<Place>(&placed)) return *found;
            const auto& need = std::get<ExtentNeed>(placed);
            auto* extent = rig_.store.extents().add(need, *device.allocate(need.size_bytes, {need.compressible}));
            if (!need.slab) return {extent, 0};
        }
    }
    void give_back(const Object& object, const Place& place) {
        if (place.extent->slab_group == nullptr) rig_.store.extents().drop_if_unused(place.extent->id);
        else rig_.store.extents().detach(place, object.size_bytes, false, object.uid);
    }

    // ---- tiers, as memory/tiers.h uses the store: the second device is the host, files_ the folder ----

    void mark() {
        if (model_.objects.empty()) return;
        auto& [id, model] = some_object();
        model.evictable = below(2) == 0;
        rig_.store.set_evictable(*rig_.store.object(id), model.evictable);
    }
    std::pair<const NodeId, ModelObject>& some_object() {
        return *std::next(model_.objects.begin(), below(static_cast<unsigned>(model_.objects.size())));
    }

    void demote() {
        if (model_.objects.empty()) return;
        auto& [id, model] = some_object();
        const Object& object = *rig_.store.object(id);
        ASSERT_EQ(code_of(rig_.store.check_eviction(object)), model.may_leave() ? 0 : EBUSY);
        if (model.may_leave() && model.where != ModelObject::Where::folder) leave(id);
    }

    // Those that the store chooses.
    void make_room() {
        using Where = ModelObject::Where;
        const DeviceIndex device = below(2);
        const uint64_t wanted = 1 + below(2 << 20);
        const auto victims = rig_.store.evictables().next(device, wanted);
        ASSERT_FALSE(victims.more) << "there are few objects";
        std::set<NodeId> chosen;
        const StoredExtent* extent = nullptr;
        for (const Object* object : victims.objects) {
            const ModelObject& model = model_.objects.at(object->id);
            ASSERT_TRUE(model.evictable || model.is_evicted()) << "not marked";
            ASSERT_TRUE(model.may_leave()) << "held, pinned or nameless";
            ASSERT_EQ(model.where == Where::home ? model.home : 1, device);
            ASSERT_NE(model.where, Where::folder);
            ASSERT_TRUE(chosen.insert(object->id).second);
            ASSERT_TRUE(extent == nullptr || extent == object->extent) << "of several allocations";
            extent = object->extent;
        }
        if (extent != nullptr) {
            ASSERT_EQ(extent->objects, victims.objects.size()) << "the memory would not become free";
        }
        // None means that none can leave.
        std::map<const StoredExtent*, unsigned> may_leave;
        for (const auto& [id, model] : model_.objects) {
            const Object& object = *rig_.store.object(id);
            if (object.device != device || object.extent == nullptr || !model.may_leave()) continue;
            if (model.evictable || model.is_evicted()) ++may_leave[object.extent];
        }
        const bool any =
            std::ranges::any_of(may_leave, [](const auto& entry) { return entry.first->objects == entry.second; });
        ASSERT_EQ(!victims.objects.empty(), any);
        for (NodeId id : chosen) leave(id);
    }

    struct Shown {
        int64_t created_ns, accessed_ns, modified_ns, changed_ns;
        uint64_t size_bytes;
        ObjectState state;
        uint32_t leases, flags;
        uid_t uid;
        unsigned mode;
        DeviceIndex home;
        bool operator==(const Shown&) const = default;
    };
    static Shown shown(const Object& object) {
        return {object.created_ns, object.accessed_ns, object.modified_ns, object.changed_ns,
                object.size_bytes, object.state,       object.leases,      object.flags & ~uint32_t{kCreateDedicated},
                object.uid,        object.mode,        object.home()};
    }

    void leave(NodeId id) {
        using Where = ModelObject::Where;
        ModelObject& model = model_.objects.at(id);
        Object& object = *rig_.store.object(id);
        const Shown before = shown(object);
        constexpr uint64_t kHostTier = 2 << 20;
        const bool host = model.home == 0 && model.where == Where::home && below(2) == 0 &&
                          rig_.store.use(1).tier_bytes + model.size <= kHostTier;
        if (host) {
            const Place place = place_on(object, 1);
            ASSERT_TRUE(
                place.extent->memory->copy_from(place.offset, *object.extent->memory, object.offset, model.size));
            if (below(8) == 0) return give_back(object, place);
            rig_.store.move(&object, 1, place, false, 1);
            ASSERT_EQ(object.device, 1u);
        } else {
            std::vector<std::byte> bytes(model.size);
            ASSERT_TRUE(object.extent->memory->copy_out(object.offset, bytes));
            if (below(8) == 0) return;
            files_[++last_file_] = std::move(bytes);
            rig_.store.set_stored(&object, last_file_);
            ASSERT_EQ(object.extent, nullptr);
            ASSERT_EQ(object.device, model.home);
        }
        model_.reclaim(model.place(), ReclaimReason::evicted, model.size);
        ++model_.evictions[model.place()][host ? 0 : 1];
        model.where = host ? Where::host : Where::folder;
        ASSERT_TRUE(object.is_evicted());
        ASSERT_EQ(shown(object), before);
    }

    void promote() {
        if (!model_.objects.empty()) (void)is_back(*rig_.store.object(some_object().first));
    }
    // Brings the object back to its device, unless holders or a limit prevent that.
    bool is_back(Object& object) {
        ModelObject& model = model_.objects.at(object.id);
        if (!model.is_evicted()) return true;
        const int code = code_of(rig_.store.check_return(object));
        if (is_refused(code)) return false;
        EXPECT_EQ(code, model.held() && !model.sealed ? EBUSY : 0);
        if (code != 0) return false;
        const Shown before = shown(object);
        const Place place = place_on(object, model.home);
        if (object.stored != 0) {
            EXPECT_TRUE(place.extent->memory->copy_in(place.offset, files_.at(object.stored)));
        } else {
            EXPECT_TRUE(
                place.extent->memory->copy_from(place.offset, *object.extent->memory, object.offset, model.size));
        }
        if (below(8) == 0) {
            give_back(object, place);
            return false;
        }
        rig_.store.move(&object, model.home, place, object.session_leases > 0, 0);
        if (model.held() && model.where == ModelObject::Where::host) model.former.emplace_back(1, model.size);
        model.where = ModelObject::Where::home;
        EXPECT_FALSE(object.is_evicted());
        EXPECT_EQ(object.stored, 0u);
        EXPECT_EQ(object.device, model.home);
        EXPECT_EQ(shown(object), before);
        return true;
    }

    // The errno of putting an object at a name, over an existing one.
    int check_put(const std::string& name, uid_t who) const {
        if (model_.blocked_by_object(name)) return ENOTDIR;
        if (model_.directories.contains(name)) {
            const int refused = model_.check_remove(name, who);  // checked first, as in the kernel
            return refused != 0 ? refused : EISDIR;
        }
        if (model_.names.contains(name)) return model_.check_remove(name, who);
        return model_.may_write_in(model_.parent(name), who) ? 0 : EACCES;
    }

    void replace() {
        if (model_.objects.empty()) return;
        SessionId session = some_session();
        uid_t who = uid(session);
        NodeId id = std::next(model_.objects.begin(), below(static_cast<unsigned>(model_.objects.size())))->first;
        std::string to = some_name();
        auto& object = model_.objects.at(id);
        auto from = std::find_if(model_.names.begin(), model_.names.end(),
                                 [&](const auto& entry) { return entry.second == id; });
        std::string old_name = from == model_.names.end() ? "" : from->first;
        auto mine = object.leases.find(session);
        int expected = 0;
        if (mine == object.leases.end() || mine->second.second == 0) expected = EACCES;
        else if (!object.sealed && object.writers_besides(session) > 0) expected = EBUSY;
        if (expected == 0 && !old_name.empty()) expected = model_.check_remove(old_name, who);
        const bool over = below(4) != 0;
        if (expected == 0 && to != old_name) {
            expected = check_put(to, who);
            const bool is_taken = model_.names.contains(to) || model_.directories.contains(to);
            if (!over && is_taken) expected = EEXIST;
        }
        const int given = code_of(rig_.store.give_name(session, id, to, over));
        if (expected == 0 && is_refused(given)) return;
        ASSERT_EQ(given, expected) << old_name << " to " << to;
        if (expected != 0) return;
        object.seal();
        if (!object.named) object.from = now();
        object.named = true;
        object.reclaim = ReclaimReason::unlinked;
        if (to == old_name) return;
        if (model_.names.contains(to)) {
            NodeId gone = model_.names.at(to);
            model_.names.erase(to);
            model_.objects.at(gone).lose_name();
            model_.free_if_unused(gone);
        }
        if (!old_name.empty()) model_.names.erase(old_name);
        model_.add_name(to, id, who);
        model_.prune();
    }

    void open() {
        SessionId session = some_session();
        std::string name = some_name();
        bool write = below(2) == 0;
        bool sealed_only = below(4) == 0;
        int expected = model_.find(name);
        if (expected == 0) {
            const auto& object = model_.objects.at(model_.names.at(name));
            if (!Model::may(uid(session), object.uid, object.mode, write ? 6 : 4)) expected = EACCES;
            else if (write && object.sealed) expected = EPERM;
            else if (sealed_only && !object.sealed) expected = EBUSY;
        }
        // An object in the host may also be opened there.
        if (expected == 0) {
            const ModelObject& object = model_.objects.at(model_.names.at(name));
            const bool returns = object.where == ModelObject::Where::folder || below(2) == 0;
            if (returns && !is_back(*rig_.store.object(model_.names.at(name)))) return;
        }
        auto opened = rig_.store.open(session, name, write ? Access::write : Access::read, sealed_only);
        ASSERT_EQ(code_of(opened), expected) << "open " << name;
        if (!opened) return;
        ASSERT_EQ((*opened)->id, model_.names.at(name));
        model_.objects.at((*opened)->id).use(now());
        auto& counts = model_.objects.at((*opened)->id).leases[session];
        ++(write ? counts.second : counts.first);
    }

    void release() {
        if (model_.objects.empty()) return;
        SessionId session = some_session();
        NodeId id = std::next(model_.objects.begin(), below(static_cast<unsigned>(model_.objects.size())))->first;
        bool write = below(2) == 0;
        auto& object = model_.objects.at(id);
        auto counts = object.leases.find(session);
        int* mine = counts == object.leases.end() ? nullptr : write ? &counts->second.second : &counts->second.first;
        int expected = mine != nullptr && *mine > 0 ? 0 : ENOENT;
        ASSERT_EQ(code_of(rig_.store.release(session, id, write ? Access::write : Access::read)), expected);
        if (expected != 0) return;
        --*mine;
        object.use(now());
        model_.free_if_unused(id);
    }

    void seal() {
        SessionId session = some_session();
        std::string name = some_name();
        int expected = model_.find(name);
        ModelObject* object = expected == 0 ? &model_.objects.at(model_.names.at(name)) : nullptr;
        if (object != nullptr) {
            if (!Model::may(uid(session), object->uid, object->mode, 2)) expected = EACCES;
            else if (!object->sealed && object->writers_besides(session) > 0) expected = EBUSY;
        }
        ASSERT_EQ(code_of(rig_.store.seal(session, name)), expected) << "seal " << name;
        if (expected != 0) return;
        object->seal();
    }

    void unlink() {
        SessionId session = some_session();
        std::string name = some_name();
        int expected = model_.find(name);
        if (expected == 0 || expected == EISDIR) {
            const int refused = model_.check_remove(name, uid(session));
            if (refused != 0) expected = refused;
        }
        ASSERT_EQ(code_of(rig_.store.unlink(session, name)), expected) << "unlink " << name;
        if (expected == 0) model_.remove_name(name);
    }

    void rename() {
        SessionId session = some_session();
        uid_t who = uid(session);
        std::string from = some_name();
        std::string to = some_name();
        bool replace = below(2) == 0;
        int expected = model_.find(from);
        bool directory = expected == EISDIR;
        if (directory) expected = 0;
        if (expected == 0) expected = model_.check_remove(from, who);
        if (expected == 0 && model_.blocked_by_object(to)) expected = ENOTDIR;
        if (expected == 0 && directory && to.starts_with(from + "/")) expected = EINVAL;
        bool same = from == to;
        if (expected == 0 && same && !replace) expected = EEXIST;
        if (expected == 0 && !same) {
            if (model_.names.contains(to) || model_.directories.contains(to)) {
                if (!replace) expected = EEXIST;
                else expected = model_.check_remove(to, who);
                // Every directory here has entries.
                if (expected == 0 && model_.directories.contains(to)) expected = directory ? ENOTEMPTY : EISDIR;
                else if (expected == 0 && directory) expected = ENOTDIR;
            } else if (!model_.may_write_in(model_.parent(to), who)) {
                expected = EACCES;
            }
        }
        const int renamed = code_of(rig_.store.rename(session, from, to, replace));
        if (expected == 0 && is_refused(renamed)) return;
        ASSERT_EQ(renamed, expected) << from << " -> " << to;
        if (expected != 0 || same) return;
        if (directory) return move_directory(from, to, who);
        NodeId id = model_.names.at(from);
        if (model_.names.contains(to)) {
            NodeId old = model_.names.at(to);
            model_.names.erase(to);
            model_.objects.at(old).lose_name();
            model_.free_if_unused(old);
        }
        model_.names.erase(from);
        model_.add_name(to, id, who);
        model_.prune();
    }

    void move_directory(const std::string& from, const std::string& to, uid_t who) {
        auto moved = [&](const std::string& path) { return to + path.substr(from.size()); };
        auto inside = [&](const std::string& path) { return path == from || path.starts_with(from + "/"); };
        std::map<std::string, uid_t> directories;
        for (const auto& [path, owner] : model_.directories) {
            if (inside(path)) directories[moved(path)] = owner;
        }
        std::map<std::string, NodeId> names;
        for (const auto& [path, id] : model_.names) {
            if (inside(path)) names[moved(path)] = id;
        }
        std::erase_if(model_.directories, [&](const auto& entry) { return inside(entry.first); });
        std::erase_if(model_.names, [&](const auto& entry) { return inside(entry.first); });
        for (const auto& entry : directories) model_.directories.insert(entry);
        for (const auto& [path, id] : names) model_.add_name(path, id, who);
        model_.prune();
    }

    void attribute() {
        SessionId session = some_session();
        std::string name = some_name();
        std::string key = below(2) == 0 ? "shape" : "dtype";
        std::string value(below(40), static_cast<char>(below(256)));
        int found = model_.find(name);
        if (found == EISDIR) return attribute_of_directory(session, name, key, value);
        ModelObject* object = found == 0 ? &model_.objects.at(model_.names.at(name)) : nullptr;
        bool may_write = object != nullptr && Model::may(uid(session), object->uid, object->mode, 2);
        bool may_read = object != nullptr && Model::may(uid(session), object->uid, object->mode, 4);
        int expected = found != 0 ? found : may_write ? 0 : EACCES;
        if (below(3) == 0) {
            if (expected == 0 && !object->attributes.contains(key)) expected = ENODATA;
            ASSERT_EQ(code_of(rig_.store.remove_attribute(session, name, key)), expected);
            if (expected == 0) object->attributes.erase(key);
        } else {
            ASSERT_EQ(code_of(rig_.store.set_attribute(session, name, key, value)), expected);
            if (expected == 0) object->attributes[key] = value;
        }
        if (!may_read) return;
        auto got = rig_.store.get_attribute(session, name, key);
        ASSERT_EQ(got.has_value(), object->attributes.contains(key));
        if (got) {
            ASSERT_EQ(*got, object->attributes[key]);
        }
    }

    void attribute_of_directory(SessionId session, const std::string& name, const std::string& key,
                                const std::string& value) {
        const bool may = uid(session) == 0 || model_.directories.at(name) == uid(session);
        ASSERT_EQ(code_of(rig_.store.set_attribute(session, name, key, value)), may ? 0 : EACCES);
        if (!may) return;
        auto got = rig_.store.get_attribute(session, name, key);
        ASSERT_TRUE(got);
        ASSERT_EQ(*got, value);
    }

    void list() {
        std::string path = below(3) == 0 ? "" : some_name();
        if (!path.empty() && !model_.directories.contains(path)) return;
        std::set<std::string> expected;
        std::string prefix = path.empty() ? "" : path + "/";
        auto add = [&](const std::string& name) {
            if (name.starts_with(prefix))
                expected.insert(name.substr(prefix.size(), name.find('/', prefix.size()) - prefix.size()));
        };
        for (const auto& [name, id] : model_.names) add(name);
        std::set<std::string> listed;
        uint64_t cookie = 0;
        do {
            auto entries = rig_.store.list(some_session(), path, cookie, 1 + below(3), &cookie);
            ASSERT_TRUE(entries);
            for (const auto& entry : *entries) ASSERT_TRUE(listed.insert(entry->name).second);
        } while (cookie != 0);
        ASSERT_EQ(listed, expected);
    }

    static uint8_t pattern(NodeId id) { return static_cast<uint8_t>(1 + id % 255); }

    // What the metrics report.
    void check_counts() {
        std::array<std::pair<int64_t, int64_t>, 2> leases = {};
        for (const auto& [id, object] : model_.objects) {
            for (const auto& [session, counts] : object.leases) {
                auto& of_device = leases[rig_.store.object(id)->device];
                of_device.first += counts.first;
                of_device.second += counts.second;
            }
        }
        const StoreCounts& counts = rig_.store.counts();
        for (DeviceIndex device : {0u, 1u}) {
            ASSERT_EQ(counts.readers(device), leases[device].first);
            ASSERT_EQ(counts.writers(device), leases[device].second);
            for (size_t reason = 0; reason < kReclaimReasons; ++reason) {
                ASSERT_EQ(counts.reclaimed_bytes(device, static_cast<ReclaimReason>(reason)),
                          model_.reclaimed[device][reason])
                    << "reason " << reason << " on device " << device;
            }
            for (bool to_folder : {false, true}) {
                ASSERT_EQ(counts.evictions(device, to_folder), model_.evictions[device][to_folder ? 1 : 0]);
            }
        }
    }

    void check_everything() {
        check_counts();
        ASSERT_EQ(rig_.store.object_count(), model_.objects.size());
        SessionId root = rig_.store.begin_session({0, 0, 1, {}});
        uint64_t bytes = 0;
        uint64_t unlinked = 0;
        std::set<uint64_t> in_files;
        std::map<std::pair<DeviceIndex, uid_t>, uint64_t> pinned;
        for (const auto& [id, object] : model_.objects) {
            const Object* stored = rig_.store.object(id);
            if (stored->stored == 0) bytes += object.size;
            else in_files.insert(stored->stored);
            unlinked += object.named ? 0 : object.size;
            ASSERT_EQ(stored->home(), object.home);
            ASSERT_EQ(stored->is_evicted(), object.is_evicted());
            ASSERT_EQ(stored->stored != 0, object.where == ModelObject::Where::folder);
            ASSERT_EQ((stored->flags & kCreateEvictable) != 0, object.evictable);
            ASSERT_EQ(stored->uid, object.uid);
            ASSERT_EQ((stored->flags & kPinned) != 0, object.pin != ModelObject::Pin::none);
            ASSERT_EQ(stored->lifetime == nullptr ? 0 : stored->lifetime->ttl_ns, object.ttl);
            if (object.pin == ModelObject::Pin::owner) pinned[{stored->home(), object.uid}] += object.size;
            if (!stored->retired) continue;
            ASSERT_TRUE(object.held());
            for (const auto& retired : *stored->retired) {
                bytes += retired.size_bytes;
                unlinked += retired.size_bytes;
            }
        }
        std::erase_if(files_, [&](const auto& file) { return !in_files.contains(file.first); });
        ASSERT_EQ(files_.size(), in_files.size());
        ASSERT_EQ(rig_.store.use(0).object_bytes + rig_.store.use(1).object_bytes, bytes);
        ASSERT_EQ(rig_.store.use(0).unlinked_bytes + rig_.store.use(1).unlinked_bytes, unlinked);
        for (DeviceIndex device : {0u, 1u}) {
            for (uid_t who : {0u, 1000u, 1001u}) {
                const uint64_t counted = rig_.store.lifetimes().pinned_bytes(device, who);
                ASSERT_EQ(counted, (pinned[{device, who}])) << "pinned by " << who;
            }
        }
        // The pages give the same result.
        NodeId after = 0;
        for (auto page = rig_.store.unlinked(root, true, 0, 3); !page.empty();
             page = rig_.store.unlinked(root, true, after, 3)) {
            for (const auto& entry : page) {
                // An object's former memory comes before its own.
                ASSERT_GE(entry.object->id, after);
                ASSERT_FALSE(entry.holders.empty());
                after = entry.object->id;
                unlinked -= entry.size_bytes;
            }
        }
        ASSERT_EQ(unlinked, 0u);
        for (const auto& [name, id] : model_.names) {
            auto node = rig_.store.stat(root, name);
            ASSERT_TRUE(node) << name;
            const auto& object = static_cast<const Object&>(**node);
            const auto& model = model_.objects.at(id);
            ASSERT_EQ(object.id, id);
            ASSERT_EQ(Tree::path_of(object), name);
            ASSERT_EQ(object.size_bytes, model.size);
            ASSERT_EQ(object.state == ObjectState::sealed, model.sealed);
            uint32_t leases = 0;
            for (const auto& [session, counts] : model.leases)
                leases += static_cast<uint32_t>(counts.first + counts.second);
            ASSERT_EQ(object.leases, leases);
            // Each object still has its own pattern, and no bytes of others.
            std::vector<std::byte> content(model.size);
            if (object.stored != 0) content = files_.at(object.stored);
            else ASSERT_TRUE(object.extent->memory->copy_out(object.offset, content));
            ASSERT_EQ(content.size(), model.size);
            ASSERT_TRUE(
                std::all_of(content.begin(), content.end(), [&](std::byte b) { return b == std::byte{pattern(id)}; }))
                << name << " was overwritten";
        }
        rig_.store.end_session(root);
    }

    std::mt19937 random_;
    bool limited_;
    StoreRig rig_;
    Model model_;
    std::map<uint64_t, std::vector<std::byte>> files_;  // of the tier; checked now and then, so some are no object's
    uint64_t last_file_ = 0;
};

unsigned from_environment(const char* name, unsigned otherwise) {
    const char* value = getenv(name);
    return value == nullptr ? otherwise : static_cast<unsigned>(strtoul(value, nullptr, 10));
}

void run_seeds(bool limited) {
    if (getenv("GSHM_SIM_SEED") != nullptr) {
        Simulation(from_environment("GSHM_SIM_SEED", 0), limited).go(4000);
        return;
    }
    unsigned seeds = from_environment("GSHM_SIM_SEEDS", 25);
    for (unsigned seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Simulation(seed, limited).go(1500);
    }
}

TEST(StoreModel, AnswersAsTheModelDoes) {
    run_seeds(false);
}

TEST(StoreModel, ExceedsNoLimit) {
    run_seeds(true);
}

}  // namespace
}  // namespace gshm::core::test

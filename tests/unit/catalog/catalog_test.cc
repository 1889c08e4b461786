// Why this file is long: every kind of state that outlives a daemon has its test here, with one rig.
// A store, its catalog and its ledger, as the next daemon finds them after a kill.
#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "catalog/catalog.h"
#include "fuse/known_nodes.h"
#include "store/acl.h"
#include "store/files.h"
#include "store/lifetimes.h"
#include "support/memory_device.h"
#include "support/recount.h"

namespace gshm::core::test {
namespace {

constexpr size_t kLedgerBytes = 1 << 20;
constexpr size_t kJournalBytes = 16 << 10;  // so little that it is full now and then
const Credentials kRoot{0, 0, 1, {}};
const Credentials kUser{1000, 1000, 2, {}};

// Memory that outlives the daemon: extents by key, the ledger, the catalog's journal and sum.
struct Kept {
    std::unordered_map<uint64_t, std::shared_ptr<Extent>> extents;
    std::vector<std::byte> journal_bytes = std::vector<std::byte>(kJournalBytes);
    Journal journal{journal_bytes};
    CatalogSum sum{};
    std::unique_ptr<std::byte[], void (*)(void*)> ledger{static_cast<std::byte*>(aligned_alloc(64, kLedgerBytes)),
                                                         free};
    uint64_t ledger_bytes = 0;

    Kept() { memset(ledger.get(), 0, kLedgerBytes); }
    // A kill at this moment.
    Kept(const Kept& other)
        : extents(other.extents), journal_bytes(other.journal_bytes), ledger_bytes(other.ledger_bytes) {
        memcpy(ledger.get(), other.ledger.get(), kLedgerBytes);
        sum.last = other.sum.last.load();
        sum.next = other.sum.next.load();
    }
};

std::unique_ptr<Catalog> open_catalog(const std::string& path, Kept& kept) {
    auto opened = std::filesystem::exists(path) ? Catalog::open(path, kept.sum, &kept.journal)
                                                : Catalog::create(path, &kept.sum, &kept.journal);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
}

// A store as in the daemon, without the daemon.
class Daemon final : private Recorder {
public:
    // Starts later than the first one by `away_ns`.
    Daemon(const std::string& folder, Kept& kept, bool with_mount = false, int64_t away_ns = 0)
        : kept_(kept),
          device_("memory", uint64_t{1} << 40),
          store(clock_, reclaimer_, kRoot, {device_.info()}),
          catalog(open_catalog(folder + "/gshm.db", kept)),
          ledger_(std::span(kept.ledger.get(), kLedgerBytes), kept.ledger_bytes, [this](uint64_t bytes) -> Status {
              kept_.ledger_bytes = bytes;
              return {};
          }) {
        clock_.advance(away_ns);
        reclaimer_.extents = &store.extents();
        EXPECT_TRUE(catalog->use_devices(store.devices()));
        EXPECT_TRUE(store.set_ledger(&ledger_));
        Restorer restorer(store);
        EXPECT_TRUE(catalog->load_extents(restorer, [&](const Catalog::Kept& wanted) -> std::shared_ptr<Extent> {
            auto found = kept_.extents.find(wanted.key);
            return found == kept_.extents.end() ? nullptr : found->second;
        }));
        EXPECT_TRUE(catalog->load_nodes(restorer));
        const auto checked = catalog->check();
        EXPECT_TRUE(checked) << checked.error().message;
        store.set_recorder(this);
        auto finished = restorer.finish(with_mount ? Restorer::Refer(fuse::restore_known) : nullptr,
                                        [](const auto& process) { return process.pid != 666; });
        EXPECT_TRUE(finished) << finished.error().message;
        if (finished) sessions = std::move(*finished);
        EXPECT_TRUE(catalog->commit());
    }

    Result<Object*> create(SessionId session, CreateSpec spec) {
        auto made = TRY(store.create(session, spec));
        while (auto* need = std::get_if<ExtentNeed>(&made)) {
            auto* extent = store.extents().add(*need, TRY(device_.allocate(need->size_bytes, {})));
            if (!need->slab) spec.extent = extent;
            made = TRY(store.create(session, spec));
        }
        return std::get<Object*>(made);
    }

    ManualClock& clock() { return clock_; }

private:
    void changed(Node& node) override { catalog->changed(node); }
    void erased(const Node& node) override { catalog->erased(node); }
    void changed(StoredExtent& extent) override {
        kept_.extents[extent.key] = extent.memory;
        catalog->changed(extent);
    }
    void erased(const StoredExtent& extent) override { catalog->erased(extent); }

    Kept& kept_;
    ManualClock clock_;
    MemoryDevice device_;
    ImmediateReclaimer reclaimer_;

public:
    Store store;
    std::unique_ptr<Catalog> catalog;
    std::vector<std::pair<SessionId, Restorer::Process>> sessions;

private:
    Ledger ledger_;
};

// All state that any client can observe.
std::string describe(Store& store) {
    SessionId session = store.begin_session(kRoot);
    std::string text;
    std::function<void(const std::string&)> walk = [&](const std::string& path) {
        uint64_t cookie = 0;
        auto entries = store.list(session, path, 0, SIZE_MAX, &cookie);
        if (!entries) return;
        for (const Link* link : *entries) {
            const Node& node = *link->node;
            std::string name = path.empty() ? link->name : path + "/" + link->name;
            text += fmt::format("{} id {} kind {} mode {:o} {}:{} times {} {} {} {} links {} cookie {}", name, node.id,
                                static_cast<int>(node.kind), node.mode, node.uid, node.gid, node.created_ns,
                                node.accessed_ns, node.modified_ns, node.changed_ns, node.links, link->cookie);
            if (node.attributes) {
                for (const auto& [key, value] : *node.attributes) text += fmt::format(" {}={}", key, value);
            }
            if (node.acl) text += " acl " + node.acl->digest();
            const auto* directory = node.kind == NodeKind::directory ? static_cast<const Directory*>(&node) : nullptr;
            if (directory != nullptr && directory->default_acl) text += " default " + directory->default_acl->digest();
            if (node.kind == NodeKind::object) {
                const auto& object = static_cast<const Object&>(node);
                text += fmt::format(" state {} flags {} leases {}/{}/{} size {} extent {} offset {} creator {}",
                                    static_cast<int>(object.state), object.flags, object.leases, object.write_leases,
                                    object.session_leases, object.size_bytes,
                                    object.extent == nullptr ? 0 : object.extent->id, object.offset, object.creator);
                if (const Lifetime* lifetime = object.lifetime.get()) {
                    text += fmt::format(" ttl {} from {} due {} pinned {}", lifetime->ttl_ns, lifetime->from_ns.load(),
                                        lifetime->position == Lifetime::kNone ? 0 : lifetime->due_ns,
                                        lifetime->pinned_bytes);
                }
            }
            text += "\n";
            if (node.kind == NodeKind::directory) walk(name);
        }
    };
    walk("");
    expect_true_accounts(store);
    text += fmt::format("pinned {} {}\n", store.lifetimes().pinned_bytes(0, kUser.uid), store.lifetimes().queued());
    text += fmt::format("used {} unlinked {} nodes {} sessions {}\n", store.use(0).object_bytes,
                        store.use(0).unlinked_bytes, store.object_count(), store.session_count());
    store.end_session(session);
    return text;
}

class CatalogTest : public ::testing::Test {
protected:
    CatalogTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "gshm-catalog-XXXXXX").string();
        folder_ = mkdtemp(pattern.data());
        std::filesystem::create_directory(folder_ + "/first");
    }
    ~CatalogTest() override { std::filesystem::remove_all(folder_); }

    // The contents that the next daemon finds after a kill at this moment.
    std::string describe_after_kill(const Kept& kept) {
        std::string copy = folder_ + "/copy";
        std::filesystem::remove_all(copy);
        std::filesystem::copy(folder_ + "/first", copy);
        Kept then(kept);
        Daemon next(copy, then);
        return describe(next.store);
    }
    SessionId begin(Daemon& daemon, const Credentials& who) {
        SessionId session = daemon.store.begin_session(who);
        EXPECT_TRUE(daemon.store.keep_session(session, 1, {{session, 77}}));
        return session;
    }

    // An object in the journal, and not in the file.
    void make_one(Daemon& daemon, std::string_view name) {
        ASSERT_TRUE(daemon.create(begin(daemon, kRoot), {name, 100, 0, 0600, kCreateKeep, nullptr, nullptr}));
        ASSERT_TRUE(daemon.catalog->commit());
    }
    // Reads all rows of a catalog into an empty store.
    static Status load(Catalog& catalog, Store& store, Kept& kept, Restorer::Mode mode = Restorer::Mode::strict) {
        Restorer restorer(store, mode);
        TRY(catalog.use_devices(store.devices()));
        TRY(catalog.load_extents(restorer, [&](const Catalog::Kept& wanted) { return kept.extents[wanted.key]; }));
        return catalog.load_nodes(restorer);
    }

    std::string folder_;
    ManualClock clock_;
    ImmediateReclaimer reclaimer_;
};

TEST_F(CatalogTest, EverythingIsThereAgainAfterEveryStep) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    std::mt19937_64 random(7);
    auto pick = [&](uint64_t below) { return random() % below; };
    std::vector<SessionId> sessions{begin(daemon, kRoot), begin(daemon, kUser), begin(daemon, kUser)};
    std::vector<std::tuple<SessionId, NodeId, Access>> leases;
    auto name = [&] { return fmt::format("{}{}", pick(3) == 0 ? "d/" : pick(3) == 0 ? "d/e/" : "", pick(12)); };
    for (int step = 0; step < 400; ++step) {
        SessionId by = sessions[pick(sessions.size())];
        std::string one = name();
        Attributes attributes{{"k", std::to_string(step)}};
        switch (pick(12)) {
            case 0:
            case 1: {
                uint32_t flags = pick(2) == 0 ? uint32_t{kCreateKeep} : pick(2) == 0 ? uint32_t{kCreateEphemeral} : 0;
                CreateSpec spec{one, 1 + pick(200'000), 0, 0644, flags, pick(2) == 0 ? &attributes : nullptr, nullptr};
                if (pick(3) == 0) spec.ttl_ns = static_cast<int64_t>(1 + pick(1000));
                if (spec.ttl_ns != 0 && pick(2) == 0) spec.flags |= kCreateTtlUnused;
                if (pick(5) == 0) spec.size_bytes = (2 << 20) + pick(100);
                if (auto made = daemon.create(by, spec)) leases.emplace_back(by, (*made)->id, Access::write);
                break;
            }
            case 2: (void)daemon.store.unlink(by, one); break;
            case 3: (void)daemon.store.rename(by, one, name(), true); break;
            case 4: (void)daemon.store.seal(by, one); break;
            case 5: (void)daemon.store.set_attribute(by, one, "a", std::to_string(step)); break;
            case 11: {
                const bool inherited = pick(3) == 0;
                const std::string_view shared = inherited ? "d" : pick(4) == 0 ? "d/e" : std::string_view(one);
                const auto change = pick(2) == 0 ? Store::AclChange::add : Store::AclChange::remove;
                const auto id = static_cast<uint32_t>(5 + pick(3));
                (void)daemon.store.change_acl(by, shared, inherited ? AclKind::inherited : AclKind::access, change,
                                              {{AclTag::user, static_cast<uint16_t>(pick(8)), id}});
                break;
            }
            case 6:
                if (auto opened = daemon.store.open(by, one, Access::read, false)) {
                    leases.emplace_back(by, (*opened)->id, Access::read);
                }
                break;
            case 7:
                if (!leases.empty()) {
                    auto& lease = leases[pick(leases.size())];
                    (void)daemon.store.release(std::get<0>(lease), std::get<1>(lease), std::get<2>(lease));
                    std::swap(lease, leases.back());
                    leases.pop_back();
                }
                break;
            case 8:
                (void)daemon.store.change(by, one,
                                          {kChangeTtl, 0, 0, 0, static_cast<int64_t>(pick(1000)), pick(2) == 0});
                break;
            case 9: (void)daemon.store.change(by, one, {.what = pick(3) == 0 ? kChangeUnpin : kChangePin}); break;
            case 10:
                if (pick(10) == 0) {
                    std::erase_if(leases, [&](const auto& lease) { return std::get<0>(lease) == by; });
                    daemon.store.end_session(by);
                    std::replace(sessions.begin(), sessions.end(), by, begin(daemon, kUser));
                }
                break;
        }
        ASSERT_TRUE(daemon.catalog->commit());
        const std::string expected = describe(daemon.store);
        ASSERT_EQ(expected, describe_after_kill(kept)) << "step " << step;
        if (pick(4) != 0) continue;
        const Kept before(kept);  // killed when the file has the rows, and the journal still has them, too
        ASSERT_TRUE(daemon.catalog->drain());
        ASSERT_EQ(expected, describe_after_kill(before)) << "step " << step;
        ASSERT_TRUE(kept.journal.is_empty());
        ASSERT_EQ(expected, describe_after_kill(kept)) << "step " << step;
    }
}

TEST_F(CatalogTest, RowsLargerThanTheJournalAreWrittenToTheFile) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    const SessionId session = begin(daemon, kRoot);
    ASSERT_TRUE(daemon.create(session, {"before", 100, 0, 0600, kCreateKeep, nullptr, nullptr}));
    ASSERT_TRUE(daemon.catalog->commit());
    ASSERT_FALSE(kept.journal.is_empty());
    const Attributes large{{"large", std::string(2 * kJournalBytes, 'x')}};
    ASSERT_TRUE(daemon.create(session, {"large", 100, 0, 0600, kCreateKeep, &large, nullptr}));
    ASSERT_TRUE(daemon.catalog->commit());
    EXPECT_TRUE(kept.journal.is_empty());
    EXPECT_EQ(describe_after_kill(kept), describe(daemon.store));
}

// Damage to the journal is refused, and a salvage finds the rows that the file has.
TEST_F(CatalogTest, ADamagedJournalIsRefused) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    make_one(daemon, "a");
    size_t refused = 0;
    for (size_t at = 0; at < 600; at += 3) {
        Kept damaged(kept);
        damaged.journal_bytes[at] ^= std::byte{4};
        std::string copy = folder_ + "/copy";
        std::filesystem::remove_all(copy);
        std::filesystem::copy(folder_ + "/first", copy);
        // A byte after the entries, or one that hides them all: then the sum notices.
        auto load = [&]() -> Status {
            auto opened = TRY(Catalog::open(copy + "/gshm.db", damaged.sum, &damaged.journal));
            Store store(clock_, reclaimer_, kRoot, daemon.store.devices());
            TRY(CatalogTest::load(*opened, store, kept));
            TRY(opened->check());
            EXPECT_EQ(store.object_count(), 1u);
            return {};
        };
        if (auto loaded = load(); !loaded) {
            ++refused;
            EXPECT_EQ(loaded.error().code, EUCLEAN) << loaded.error().message;
        }
        EXPECT_TRUE(Catalog::salvage(copy + "/gshm.db", &damaged.journal)) << "byte " << at;
    }
    EXPECT_GT(refused, 50u);
}

TEST_F(CatalogTest, ASalvageReadsTheJournalAndLeavesIt) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    make_one(daemon, "a");
    std::filesystem::copy(folder_ + "/first", folder_ + "/copy");
    for (int round = 0; round < 2; ++round) {  // as after a salvage that was killed
        auto damaged = Catalog::salvage(folder_ + "/copy/gshm.db", &kept.journal);
        ASSERT_TRUE(damaged) << damaged.error().message;
        Store store(clock_, reclaimer_, kRoot, daemon.store.devices());
        ASSERT_TRUE(load(**damaged, store, kept, Restorer::Mode::salvage));
        EXPECT_EQ(store.object_count(), 1u);
        EXPECT_EQ((*damaged)->damage().rows, 0u);
    }
    EXPECT_FALSE(kept.journal.is_empty());
}

// The disk is full when the next daemon starts: it serves everything, and the rows stay in the journal.
TEST_F(CatalogTest, AStartThatCannotWriteTheFileLeavesTheJournal) {
    Kept kept;
    {
        Daemon daemon(folder_ + "/first", kept);
        make_one(daemon, "a");
        std::filesystem::copy(folder_ + "/first", folder_ + "/copy");
    }
    Kept then(kept);
    auto opened = Catalog::open(folder_ + "/copy/gshm.db", then.sum, &then.journal);
    ASSERT_TRUE(opened);
    Store store(clock_, reclaimer_, kRoot, {DeviceInfo(MemoryDevice("memory", uint64_t{1} << 40).info())});
    ASSERT_TRUE(load(**opened, store, kept));
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto ignored = signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    const auto checked = (*opened)->check();
    const auto drained = (*opened)->drain();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, ignored);
    EXPECT_TRUE(checked) << checked.error().message;
    EXPECT_FALSE(drained);
    EXPECT_FALSE(then.journal.is_empty());
    EXPECT_TRUE((*opened)->drain());
    EXPECT_TRUE(then.journal.is_empty());
}

TEST_F(CatalogTest, WhatWasNotCommittedIsNotThere) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    SessionId session = begin(daemon, kRoot);
    ASSERT_TRUE(daemon.create(session, {"a", 100, 0, 0600, kCreateKeep, nullptr, nullptr}));
    ASSERT_TRUE(daemon.catalog->commit());
    std::string before = describe_after_kill(kept);
    ASSERT_TRUE(daemon.create(session, {"b", 100, 0, 0600, kCreateKeep, nullptr, nullptr}));
    ASSERT_TRUE(daemon.store.rename(session, "a", "c", false));
    EXPECT_EQ(describe_after_kill(kept), before);
    ASSERT_TRUE(daemon.catalog->commit());
    EXPECT_NE(describe_after_kill(kept), before);
}

TEST_F(CatalogTest, ADeadProcessLeavesNothingButWhatItSealed) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    SessionId doomed = begin(daemon, {1000, 1000, 666, {}});
    ASSERT_TRUE(daemon.create(doomed, {"open", 100, 0, 0600, 0, nullptr, nullptr}));
    ASSERT_TRUE(daemon.create(doomed, {"sealed", 100, 0, 0600, 0, nullptr, nullptr}));
    ASSERT_TRUE(daemon.store.seal(doomed, "sealed"));
    ASSERT_TRUE(daemon.create(doomed, {"gone", 100, 0, 0600, 0, nullptr, nullptr}));
    ASSERT_TRUE(daemon.store.unlink(doomed, "gone"));
    ASSERT_TRUE(daemon.catalog->commit());
    std::string after = describe_after_kill(kept);
    EXPECT_EQ(after.find("open id"), std::string::npos) << after;
    EXPECT_NE(after.find("sealed id"), std::string::npos) << after;
    EXPECT_NE(after.find("used 100 unlinked 0 nodes 1 sessions 1"), std::string::npos) << after;
}

TEST_F(CatalogTest, TtlsAndPinsOutliveADaemon) {
    Kept kept;
    {
        Daemon daemon(folder_ + "/first", kept);
        const SessionId session = begin(daemon, kUser);
        auto create = [&](std::string_view name, int64_t ttl_ns, uint32_t flags) {
            CreateSpec spec{name, 100, 0, 0600, kCreateKeep | flags, nullptr, nullptr};
            spec.ttl_ns = ttl_ns;
            ASSERT_TRUE(daemon.create(session, spec));
        };
        create("fixed", 100, 0);
        create("unused", 100, kCreateTtlUnused);
        create("owners", 100, 0);
        create("roots", 100, 0);
        create("unnamed", 100, 0);
        ASSERT_TRUE(daemon.store.change(session, "owners", {.what = kChangePin}));
        ASSERT_TRUE(daemon.store.change(begin(daemon, kRoot), "roots", {.what = kChangePin}));
        ASSERT_TRUE(daemon.store.unlink(session, "unnamed"));
        ASSERT_TRUE(daemon.catalog->commit());
        ASSERT_TRUE(daemon.store.set_ledger(nullptr));
    }
    // 60 pass before the kill and the restart.
    Daemon next(folder_ + "/first", kept, false, 60);
    const SessionId session = begin(next, kUser);
    auto& lifetimes = next.store.lifetimes();
    auto there = [&] {
        uint64_t end = 0;
        std::set<std::string> names;
        const auto listed = next.store.list(session, "", 0, SIZE_MAX, &end);
        for (const Link* link : *listed) names.insert(link->name);
        return names;
    };
    using Names = std::set<std::string>;
    EXPECT_EQ(lifetimes.pinned_bytes(0, kUser.uid), 100u);
    next.clock().advance(39);
    EXPECT_FALSE(lifetimes.expire(100));
    EXPECT_EQ(there(), (Names{"fixed", "unused", "owners", "roots"}));
    next.clock().advance(1);
    EXPECT_FALSE(lifetimes.expire(100));
    EXPECT_EQ(there(), (Names{"unused", "owners", "roots"}));
    // It is still held by the session of before.
    next.clock().advance(1000);
    EXPECT_FALSE(lifetimes.expire(100));
    EXPECT_EQ(there(), (Names{"unused", "owners", "roots"}));
    for (const auto& [former, process] : next.sessions) next.store.end_session(former);
    next.clock().advance(100);
    EXPECT_FALSE(lifetimes.expire(100));
    EXPECT_EQ(there(), (Names{"owners", "roots"}));
    EXPECT_EQ(next.store.change(session, "roots", {.what = kChangeUnpin}).error().code, EPERM);
    ASSERT_TRUE(next.store.change(session, "owners", {.what = kChangeUnpin}));
    EXPECT_FALSE(lifetimes.expire(100));
    EXPECT_EQ(there(), Names{"roots"});
    EXPECT_EQ(lifetimes.pinned_bytes(0, kUser.uid), 0u);
}

TEST_F(CatalogTest, ADeadProcessLeavesNoEphemeralObject) {
    Kept kept;
    Daemon daemon(folder_ + "/first", kept);
    const SessionId doomed = begin(daemon, {1000, 1000, 666, {}});
    const SessionId lives = begin(daemon, kUser);
    for (SessionId session : {doomed, lives}) {
        const std::string name = session == doomed ? "doomed" : "alive";
        ASSERT_TRUE(daemon.create(session, {name, 100, 0, 0600, kCreateEphemeral, nullptr, nullptr}));
        ASSERT_TRUE(daemon.store.seal(session, name));
    }
    ASSERT_TRUE(daemon.catalog->commit());
    const std::string after = describe_after_kill(kept);
    EXPECT_EQ(after.find("doomed"), std::string::npos) << after;
    EXPECT_NE(after.find("alive"), std::string::npos) << after;
    EXPECT_NE(after.find(fmt::format("creator {}", lives)), std::string::npos) << after;
}

TEST_F(CatalogTest, ASlabIsZeroWhereNoObjectIs) {
    Kept kept;
    {
        Daemon daemon(folder_ + "/first", kept);
        SessionId session = begin(daemon, kRoot);
        Object* object = *daemon.create(session, {"kept", 1000, 0, 0600, kCreateKeep, nullptr, nullptr});
        // Bytes that were freed but not zeroed when the daemon died.
        ASSERT_TRUE(object->extent->memory->fill(0, object->extent->size_bytes, 7));
        ASSERT_TRUE(daemon.catalog->commit());
        ASSERT_TRUE(daemon.store.set_ledger(nullptr));
    }
    Daemon next(folder_ + "/first", kept);
    SessionId session = begin(next, kRoot);
    Object* fresh = *next.create(session, {"fresh", 100'000, 0, 0600, 0, nullptr, nullptr});
    Object* old = *next.store.open(session, "kept", Access::read, false);
    ASSERT_EQ(fresh->extent, old->extent);
    std::vector<std::byte> bytes(100'000);
    ASSERT_TRUE(fresh->extent->memory->copy_out(fresh->offset, bytes));
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
    bytes.resize(1000);
    ASSERT_TRUE(old->extent->memory->copy_out(old->offset, bytes));
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{7}; }));
}

// Clients, the kernel and the pages of fences refer to entries by number, and may refer to one that is gone. written:
// the catalog recorded their creation and their end; else the daemon was killed before that, or could not write.
class CatalogNumbers : public CatalogTest, public ::testing::WithParamInterface<bool> {};

TEST_P(CatalogNumbers, AreNeverUsedAgain) {
    const bool written = GetParam();
    Kept kept;
    struct Numbers {
        uint64_t node, extent, key, session, file;
    };
    auto use = [&](Daemon& daemon) -> Numbers {
        Files files(daemon.store);
        const SessionId session = begin(daemon, kRoot);
        Object* object = *daemon.create(session, {"a", 2 << 20, 0, 0600, 0, nullptr, nullptr});
        const FileId file = *files.open(*object, Access::read, kRoot, 1);
        Numbers used{object->id, object->extent->id, object->extent->key, session, file};
        if (written) {
            EXPECT_TRUE(daemon.catalog->commit());
        }
        files.close(file);
        daemon.store.end_session(session);
        if (written) {
            EXPECT_TRUE(daemon.catalog->commit());
        }
        return used;
    };
    Numbers last{};
    for (int round = 0; round < 3; ++round) {
        Daemon daemon(folder_ + "/first", kept);
        const Numbers now = use(daemon);
        EXPECT_GT(now.node, last.node);
        EXPECT_GT(now.extent, last.extent);
        EXPECT_GT(now.key, last.key);
        EXPECT_GT(now.session, last.session);
        EXPECT_GT(now.file, last.file);
        last = now;
    }
}

INSTANTIATE_TEST_SUITE_P(Catalog, CatalogNumbers, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Written" : "Unwritten"; });

TEST_F(CatalogTest, TheMountsNodesAndOpenFilesAreThereAgain) {
    Kept kept;
    FileId file = 0;
    NodeId unnamed = 0;
    auto live = std::make_shared<std::atomic<size_t>>(0);
    {
        Daemon daemon(folder_ + "/first", kept);
        Files files(daemon.store);
        Directory& root = *as_directory(files.find(Files::kRoot));
        Maker maker{1, 2, 0640};
        Object* object = *files.make_object(root, "file", maker);
        ASSERT_TRUE(files.make_symlink(root, "link", maker, "else/where"));
        ASSERT_TRUE(files.make_special(root, "pipe", maker, S_IFIFO, 0));
        auto* folder = as_directory(*files.make_directory(root, "folder", maker));
        ASSERT_TRUE(files.link(*object, *folder, "second"));
        ASSERT_TRUE(files.set_attribute(*folder, "x", std::string("\0y", 2), 0));
        file = *files.open(*object, Access::write, kUser, 40);
        fuse::KnownNodes::hold(*object);
        Object* temporary = *files.make_unnamed(root, maker);
        unnamed = temporary->id;
        ASSERT_TRUE(files.open(*temporary, Access::read, kUser, 41));
        auto memory = std::make_unique<MemoryExtent>(std::make_unique<std::vector<std::byte>>(4096), live,
                                                     std::make_shared<std::function<void()>>());
        files.replace_memory(*object, std::move(memory), 4096);
        ASSERT_TRUE(files.note_backing(*object, 9));
        ASSERT_TRUE(daemon.catalog->commit());
        daemon.catalog->mark_done(40, object->id, 0);
        daemon.catalog->mark_done(42, 0, 40);
        ASSERT_TRUE(daemon.catalog->commit());
        ASSERT_TRUE(daemon.store.set_ledger(nullptr));
    }
    Daemon next(folder_ + "/first", kept, true);
    Files files(next.store);
    Directory& root = *as_directory(files.find(Files::kRoot));
    Node* node = Files::child(root, "file");
    ASSERT_NE(node, nullptr);
    EXPECT_EQ(node->links, 2u);
    EXPECT_EQ(Files::child(*as_directory(Files::child(root, "folder")), "second"), node);
    EXPECT_EQ(static_cast<Symlink*>(Files::child(root, "link"))->target, "else/where");
    EXPECT_EQ(static_cast<Special*>(Files::child(root, "pipe"))->type, static_cast<uint32_t>(S_IFIFO));
    EXPECT_EQ(Files::child(root, "folder")->attributes->at("x"), std::string("\0y", 2));
    EXPECT_EQ(files.opened(node->id, file), node);
    EXPECT_EQ(files.opened(Files::kRoot, file), nullptr);
    EXPECT_EQ(*files.open(*as_object(node), Access::write, kUser, 40), file) << "asked for again";
    EXPECT_NE(*files.open(*as_object(node), Access::write, kUser, 43), file);
    EXPECT_NE(files.find(unnamed), nullptr);
    EXPECT_EQ(files.backing_of(node->id), 9);
    EXPECT_EQ(next.catalog->done(), (std::unordered_map<uint64_t, NodeId>{{42, 0}}));
    // Without the mount no files are open.
    files.close_all();
    fuse::KnownNodes(files).forget_all();
    EXPECT_EQ(files.find(unnamed), nullptr);
}

TEST_F(CatalogTest, ANewerCatalogIsRefused) {
    std::string path = folder_ + "/first/gshm.db";
    ASSERT_TRUE(Catalog::create(path));
    {
        auto database = Database::open(path);
        ASSERT_TRUE(database->execute("PRAGMA user_version = 99"));
    }
    auto opened = Catalog::create(path);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, EPROTO);
    EXPECT_NE(opened.error().message.find("newer"), std::string::npos);
}

}  // namespace
}  // namespace gshm::core::test

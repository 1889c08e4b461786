// Catalogs that older versions of gshmd have written, kept in stored/: all rows load, and the file is then of the newest
// version.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "catalog/catalog.h"
#include "daemon/former_ledger.h"
#include "fuse/known_nodes.h"
#include "store/acl.h"
#include "store/files.h"
#include "support/memory_device.h"

namespace gshm::core::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLedgerBytes = 1 << 20;
constexpr size_t kJournalBytes = 16 << 10;
constexpr NodeId kUnlinked = 18;  // held by an open file
const std::string kStored = GSHM_SOURCE_DIR "/tests/unit/catalog/stored";

std::string read_all(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The nodes as in the file `contents` of a stored catalog, by id.
std::string describe(const Store& store) {
    std::map<NodeId, const Node*> nodes;
    std::map<NodeId, std::map<std::pair<NodeId, uint64_t>, std::string>> links;
    std::function<void(const Directory&)> walk = [&](const Directory& directory) {
        nodes[directory.id] = &directory;
        uint64_t end = 0;
        for (const Link* link : directory.order.after(0, SIZE_MAX, &end)) {
            nodes[link->node->id] = link->node;
            links[link->node->id][{directory.id, link->cookie}] = link->name;
            if (link->node->kind == NodeKind::directory) walk(static_cast<const Directory&>(*link->node));
        }
    };
    walk(store.root());
    for (NodeId id = 1; id < 100; ++id) {
        if (const Object* object = store.object(id)) nodes[id] = object;
    }
    std::string text;
    for (const auto& [id, node] : nodes) {
        text += fmt::format("{} kind {} mode {:o} owner {}:{} times {} {} {} {}", id, static_cast<int>(node->kind),
                            node->mode, node->uid, node->gid, node->created_ns, node->accessed_ns, node->modified_ns,
                            node->changed_ns);
        for (const auto& [place, name] : links[id])
            text += fmt::format(" link {}/{}/{}", place.first, place.second, name);
        if (node->attributes) {
            for (const auto& [key, value] : *node->attributes) text += fmt::format(" {}={}", key, value);
        }
        auto add_acl = [&](const char* title, const AclPointer& acl) {
            if (!acl) return;
            text += fmt::format(" {}", title);
            for (const AclEntry& entry : acl->entries()) {
                text += fmt::format(" {}/{}/{}", static_cast<int>(entry.tag), entry.rights, entry.id);
            }
        };
        add_acl("acl", node->acl);
        if (node->kind == NodeKind::directory) {
            add_acl("default", static_cast<const Directory*>(node)->default_acl);
        }
        if (node->kind == NodeKind::object) {
            const auto& object = static_cast<const Object&>(*node);
            text += fmt::format(" device {} state {} flags {} size {} extent {} offset {} file {} {}",
                                store.devices()[object.device].name, static_cast<int>(object.state), object.flags,
                                object.size_bytes, object.extent == nullptr ? 0 : object.extent->key, object.offset,
                                object.file_modified_ns, object.file_accessed_ns);
        } else if (node->kind == NodeKind::directory) {
            text += fmt::format(" implicit {}", static_cast<const Directory*>(node)->implicit ? 1 : 0);
        } else if (node->kind == NodeKind::symlink) {
            text += fmt::format(" target {}", static_cast<const Symlink*>(node)->target);
        } else {
            const auto& special = static_cast<const Special&>(*node);
            text += fmt::format(" type {} number {}", special.type, special.number);
        }
        text += "\n";
    }
    return text;
}

class StoredCatalog : public ::testing::TestWithParam<int> {
protected:
    StoredCatalog() {
        std::string pattern = (fs::temp_directory_path() / "gshm-stored-XXXXXX").string();
        folder_ = mkdtemp(pattern.data());
        fs::copy(stored() + "/gshm.db", path());
        if (fs::exists(stored() + "/sum")) {
            sum_.last = sum_.next = std::stoull(read_all(stored() + "/sum"));
        }
    }
    ~StoredCatalog() override { fs::remove_all(folder_); }
    static std::string stored() { return kStored + "/version-" + std::to_string(GetParam()); }
    std::string path() const { return folder_ + "/gshm.db"; }

    // Loads it into a store as gshmd does, and changes it. Returns the description of the store.
    using Change = std::function<Status(Catalog&)>;
    Result<std::string> load(Migrations steps = migrations(), const Change& change = nullptr) {
        ManualClock clock;
        MemoryDevice device("host", uint64_t{1} << 40);
        ImmediateReclaimer reclaimer;
        Store store(clock, reclaimer, Credentials{0, 0, 1, {}}, {device.info()});
        reclaimer.extents = &store.extents();
        auto catalog = TRY(Catalog::open(path(), sum_, &journal_, steps));
        TRY(catalog->use_devices(store.devices()));
        std::unique_ptr<std::byte[], void (*)(void*)> memory(static_cast<std::byte*>(aligned_alloc(64, kLedgerBytes)),
                                                             free);
        memset(memory.get(), 0, kLedgerBytes);
        Ledger ledger(std::span(memory.get(), kLedgerBytes), kLedgerBytes, [](uint64_t) -> Status { return {}; });
        TRY(store.set_ledger(&ledger));
        Restorer restorer(store);
        TRY(catalog->load_extents(restorer, [&](const Catalog::Kept& kept) -> Result<std::shared_ptr<Extent>> {
            EXPECT_TRUE(kept.kept);
            EXPECT_FALSE(kept.handle);
            // Files have grown since.
            const uint64_t bytes = kept.is_file ? std::max<uint64_t>(kept.size_bytes, 1 << 20) : kept.size_bytes;
            return std::shared_ptr<Extent>(TRY(device.allocate(bytes, {})));
        }));
        TRY(catalog->load_nodes(restorer));
        if (catalog->migrated_from() == 1) TRY(restorer.link_and_check());
        if (fs::exists(stored() + "/gshm.leases")) {
            TRY(add_former_entries(stored() + "/gshm.leases", ledger, [&](NodeId node) {
                const Object* object = store.object(node);
                return object == nullptr || object->extent == nullptr ? 0 : object->extent->key;
            }));
        } else {
            ledger.add(LedgerKind::file, 4, kUnlinked, 1);
        }
        TRY(catalog->check());
        TRY(restorer.finish(fuse::restore_known, [](const auto&) { return true; }));
        if (change) TRY(change(*catalog));
        return describe(store);
    }

    std::string folder_;
    CatalogSum sum_{};
    std::vector<std::byte> journal_bytes_ = std::vector<std::byte>(kJournalBytes);
    Journal journal_{journal_bytes_};
};
INSTANTIATE_TEST_SUITE_P(Version, StoredCatalog, ::testing::Range(1, newest_version(migrations()) + 1));

TEST_P(StoredCatalog, Loads) {
    ASSERT_EQ(version_in_file(path()), GetParam());
    const std::string expected = read_all(stored() + "/contents");
    ASSERT_FALSE(expected.empty());
    for (int round = 0; round < 2; ++round) {
        auto loaded = load();
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(*loaded, expected);
        EXPECT_EQ(version_in_file(path()), newest_version(migrations()));
    }
    auto database = Database::open(path());
    ASSERT_TRUE(database);
    auto total = check_rows(*database);
    ASSERT_TRUE(total) << total.error().message;
    EXPECT_EQ(*total, sum_.last.load());
}

TEST_P(StoredCatalog, HasTheTablesOfANewOneAfterwards) {
    ASSERT_TRUE(load());
    auto columns = [](const std::string& file) {
        std::string text;
        auto database = Database::open(file);
        if (!database) return database.error().message;
        auto read = database->prepare("SELECT t.name || '.' || c.name || ' ' || c.type || ' ' || c.pk FROM "
                                      "sqlite_schema t, pragma_table_info(t.name) "
                                      "c WHERE t.type = 'table' ORDER BY t.name, c.cid");
        if (!read || !read->each([&] { text += std::string(read->blob(0)) + "\n"; })) return std::string("unreadable");
        return text;
    };
    const std::string other = folder_ + "/new.db";
    ASSERT_TRUE(Catalog::create(other));
    EXPECT_EQ(columns(path()), columns(other));
}

TEST_P(StoredCatalog, OfANewerVersionIsRefusedAndUnchanged) {
    {
        auto database = Database::open(path());
        ASSERT_TRUE(database && database->execute("PRAGMA user_version = 99"));
    }
    const std::string before = read_all(path());
    auto refused = load();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EPROTO);
    EXPECT_NE(refused.error().message.find("start the newer one"), std::string::npos) << refused.error().message;
    EXPECT_EQ(Catalog::check_version(path()).error().code, EPROTO);
    EXPECT_TRUE(read_all(path()) == before);
    for (const auto& file : Catalog::files(path())) {
        EXPECT_TRUE(file == path() || !fs::exists(file) || fs::file_size(file) == 0) << file;
    }
}

TEST_P(StoredCatalog, OfANegativeVersionIsDamaged) {
    {
        auto database = Database::open(path());
        ASSERT_TRUE(database && database->execute("PRAGMA user_version = -1"));
    }
    EXPECT_EQ(load().error().code, EUCLEAN);
}

TEST_P(StoredCatalog, DamagedIsRefused) {
    const std::string good = read_all(path());
    auto expect_refused = [&](const std::string& what) {
        auto loaded = load();
        EXPECT_FALSE(loaded) << what;
        EXPECT_EQ(version_in_file(path()), GetParam()) << what;
        for (const auto& file : Catalog::files(path())) fs::remove(file);
    };
    // Each page but the first with a part overwritten.
    for (size_t page = 4096; page < good.size(); page += 4096) {
        std::string bad = good;
        bad.replace(page, 16, 16, '\xa5');
        std::ofstream(path(), std::ios::binary) << bad;
        expect_refused("page " + std::to_string(page / 4096 + 1));
    }
    std::ofstream(path(), std::ios::binary) << good.substr(0, good.size() - 4096);
    expect_refused("truncated");
    // Rows that no gshmd writes.
    for (const char* change : {"DELETE FROM nodes WHERE id = 3", "UPDATE nodes SET parent = 999 WHERE id = 12",
                               "UPDATE nodes SET kind = 9 WHERE id = 12", "DELETE FROM extents WHERE key = 1",
                               "UPDATE nodes SET offset = 1 WHERE id = 2", "UPDATE nodes SET more = x'07' WHERE id = 2",
                               "DROP TABLE done", "DROP TABLE nodes"}) {
        std::ofstream(path(), std::ios::binary) << good;
        {
            auto database = Database::open(path());
            ASSERT_TRUE(database && database->execute(change)) << change;
        }
        expect_refused(change);
    }
}

// The sum of the new rows is in memory before they are in the file: a kill right after the commit finds both.
TEST_P(StoredCatalog, OnAFullDiskStaysAsItIs) {
    const std::string before = read_all(path());
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    auto* old = signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    auto failed = load();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, old);
    const bool is_newest = GetParam() == newest_version(migrations());
    EXPECT_EQ(failed.has_value(), is_newest);  // which has nothing to write
    EXPECT_TRUE(read_all(path()) == before);
    EXPECT_EQ(version_in_file(path()), GetParam());
    const uint64_t noted = sum_.next;
    auto loaded = load();
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(*loaded, read_all(stored() + "/contents"));
    EXPECT_EQ(sum_.last.load(), noted);
}

// A migration that changes rows of a file with checksums, while the journal has rows of the older version.
Status touch_nodes(Database& database) {
    return database.execute("UPDATE nodes SET uid = uid + 1");
}
Status add_table(Database& database) {
    return database.execute("CREATE TABLE extra (key INTEGER PRIMARY KEY, value BLOB, sum INTEGER);"
                            "INSERT INTO extra VALUES (7, x'01', NULL)");
}
Status fail_step(Database& database) {
    auto made = database.execute("CREATE TABLE half (key INTEGER)");
    return made ? Status(fail(EIO, "a step that fails")) : made;
}

class Migrating : public StoredCatalog {
protected:
    std::vector<Migration> steps(std::initializer_list<Migration> further) {
        std::vector<Migration> all(migrations().begin(), migrations().end());
        all.insert(all.end(), further);
        return all;
    }
    // Contents after touch_nodes().
    static std::string touched(std::string text) {
        for (size_t at = 0; (at = text.find(" owner ", at)) != std::string::npos; ++at) {
            const size_t begin = at + 7;
            const size_t end = text.find(':', begin);
            text.replace(begin, end - begin, std::to_string(std::stoul(text.substr(begin, end - begin)) + 1));
        }
        return text;
    }
};
INSTANTIATE_TEST_SUITE_P(Version, Migrating, ::testing::Range(1, newest_version(migrations()) + 1));

TEST_P(Migrating, RunsAllStepsOnce) {
    const auto all = steps({touch_nodes, add_table});
    const std::string expected = touched(read_all(stored() + "/contents"));
    for (int round = 0; round < 2; ++round) {
        auto loaded = load(all);
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(*loaded, expected);
        EXPECT_EQ(version_in_file(path()), newest_version(migrations()) + 2);
        // The further table has checksums as well, which are not those of the catalog's own tables.
        auto database = Database::open(path());
        ASSERT_TRUE(database && check_rows(*database));
    }
    EXPECT_EQ(load().error().code, EPROTO) << "an older gshmd does not read it";
}

TEST_P(Migrating, AStepThatFailsLeavesTheOldVersion) {
    const auto all = steps({touch_nodes, fail_step});
    const std::string before = read_all(path());
    auto failed = load(all);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, EIO);
    EXPECT_TRUE(read_all(path()) == before);
    auto loaded = load();
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(*loaded, read_all(stored() + "/contents"));
}

TEST_P(Migrating, AppliesTheJournalOfTheOlderVersion) {
    ASSERT_TRUE(load(migrations(), [](Catalog& catalog) { return catalog.set_value("staging", "12345"); }));
    ASSERT_FALSE(journal_.is_empty());
    const auto all = steps({touch_nodes});
    std::optional<std::string> found;
    auto loaded = load(all, [&](Catalog& catalog) -> Status {
        found = catalog.value("staging");
        return {};
    });
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(journal_.is_empty());
    EXPECT_EQ(found, "12345");
}

TEST_P(Migrating, ARowOfTheOlderVersionThatIsDamagedIsRefused) {
    ASSERT_TRUE(load());
    {
        auto database = Database::open(path());
        ASSERT_TRUE(database && database->execute("UPDATE nodes SET uid = 77 WHERE id = 2"));
    }
    const auto all = steps({touch_nodes});
    auto refused = load(all);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EUCLEAN);
    EXPECT_EQ(version_in_file(path()), newest_version(migrations()));
}

}  // namespace
}  // namespace gshm::core::test

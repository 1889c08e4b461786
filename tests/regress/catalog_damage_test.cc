// A daemon is killed, and its catalog damaged. The next one serves everything that was acknowledged, or refuses to
// start; it never silently starts with less. --salvage recovers a refused catalog, and --discard frees everything.
#include <fstream>
#include <functional>
#include <random>

#include "integration/library_fixture.h"
#include "support/pattern.h"

namespace gshm::core::test {
namespace {

namespace fs = std::filesystem;

// A kind of damage, and whether it must be noticed: a flipped bit may be in an unused page.
struct Damage {
    std::string name;
    std::function<void(const std::string& folder)> act;
    bool must_be_seen = false;
};

void flip(const std::string& path, uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    char byte = 0;
    file.seekg(static_cast<std::streamoff>(at)).get(byte);
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte ^ 0x10));
}

void zero(const std::string& path, uint64_t at, uint64_t bytes) {
    bytes = std::min(bytes, fs::file_size(path) - at);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at))
        .write(std::string(bytes, '\0').data(), static_cast<std::streamsize>(bytes));
}

class CatalogDamage : public LibraryTest {
protected:
    static constexpr const char* kDevice = "host:64M";
    static constexpr uint64_t kLargeBytes = 3 << 20;

    bool start_host(const std::vector<std::string>& further = {}) {
        std::vector<std::string> args = {"--device", kDevice};
        args.insert(args.end(), further.begin(), further.end());
        return start(args);
    }
    void put_object(const std::string& name, uint64_t bytes, uint64_t seed) {
        Object object = create(client_.get(), name.c_str(), bytes, "host");
        ASSERT_TRUE(object) << name;
        const std::string content = pattern(bytes, seed);
        ASSERT_EQ(gshm_copy_in(object.get(), 0, content.data(), bytes), 0) << gshm_last_error();
        ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
    }
    static bool holds(gshm_client* client, const std::string& name, uint64_t bytes, uint64_t seed) {
        gshm_object* opened = nullptr;
        if (gshm_open(client, name.c_str(), 0, &opened) != 0) return false;
        Object object(opened);
        if (gshm_size(object.get()) != bytes) return false;
        std::string content(bytes, '\0');
        return gshm_copy_out(object.get(), 0, content.data(), bytes) == 0 && first_wrong(content, seed) == bytes;
    }
    // Acknowledged contents: objects in slabs and in dedicated extents, directories, an attribute.
    void fill() {
        client_ = connect();
        for (uint64_t i = 0; i < kSmall; ++i) put_object(small(i), 5000 + i, i);
        for (uint64_t i = 0; i < kLarge; ++i) put_object(large(i), kLargeBytes + i, 1000 + i);
        ASSERT_EQ(gshm_set_attribute(client_.get(), small(0).c_str(), "key", "value", 5), 0);
    }
    static std::string small(uint64_t i) { return "folder/" + std::to_string(i % 5) + "/small" + std::to_string(i); }
    static std::string large(uint64_t i) { return "large" + std::to_string(i); }
    std::string check_all() {
        Client client = connect();
        for (uint64_t i = 0; i < kSmall; ++i) {
            if (!holds(client.get(), small(i), 5000 + i, i)) return small(i);
        }
        for (uint64_t i = 0; i < kLarge; ++i) {
            if (!holds(client.get(), large(i), kLargeBytes + i, 1000 + i)) return large(i);
        }
        char value[8];
        size_t bytes = 0;
        if (gshm_get_attribute(client.get(), small(0).c_str(), "key", value, sizeof value, &bytes) != 0)
            return "attribute";
        return std::string(value, bytes) == "value" ? "" : "attribute";
    }
    std::string db() const { return dir() + "/gshm.db"; }
    void save_files() {
        fs::remove_all(scratch() + "/saved");
        fs::create_directory(scratch() + "/saved");
        for (const char* file : kFiles) {
            if (fs::exists(dir() + "/" + file)) fs::copy(dir() + "/" + file, scratch() + "/saved/" + file);
        }
    }
    void restore_files() {
        for (const char* file : kFiles) {
            fs::remove(dir() + "/" + file);
            if (fs::exists(scratch() + "/saved/" + file)) fs::copy(scratch() + "/saved/" + file, dir() + "/" + file);
        }
    }
    std::string refusal() const {
        const std::string all = log();
        const size_t at = all.rfind("gshmd: ");
        return at == std::string::npos ? "" : all.substr(at);
    }
    std::vector<Damage> all_damages();

    static constexpr uint64_t kSmall = 300;
    static constexpr uint64_t kLarge = 4;
    static constexpr std::array kFiles = {"gshm.db", "gshm.db-wal"};
};

std::vector<Damage> CatalogDamage::all_damages() {
    std::vector<Damage> all;
    std::mt19937_64 random(3);
    for (const char* file : kFiles) {
        const std::string name = file;
        const bool is_log = name.ends_with("-wal");
        const uint64_t size = fs::file_size(dir() + "/" + name);
        auto add = [&](const std::string& what, bool seen, std::function<void(const std::string&)> act) {
            all.push_back({name + ": " + what,
                           [name, act = std::move(act)](const std::string& folder) { act(folder + "/" + name); },
                           seen});
        };
        add("deleted", true, [](const std::string& path) { fs::remove(path); });
        add("empty", true, [](const std::string& path) { fs::resize_file(path, 0); });
        for (int i = 1; i < 12; ++i) {
            add("cut at " + std::to_string(size * i / 12), is_log,
                [size, i](const std::string& path) { fs::resize_file(path, size * i / 12); });
        }
        for (uint64_t at :
             {uint64_t{0}, uint64_t{18}, uint64_t{24}, uint64_t{28}, uint64_t{36}, uint64_t{60}, uint64_t{100}}) {
            add("bit in the header at " + std::to_string(at), false, [at](const std::string& path) { flip(path, at); });
        }
        for (int i = 0; i < 25; ++i) {
            const uint64_t at = random() % size;
            add("bit at " + std::to_string(at), false, [at](const std::string& path) { flip(path, at); });
        }
        for (int i = 0; i < 8; ++i) {
            const uint64_t at = random() % size / 4096 * 4096;
            add("page of zeros at " + std::to_string(at), false,
                [at](const std::string& path) { zero(path, at, 4096); });
        }
    }
    return all;
}

TEST_F(CatalogDamage, IsServedWholeOrRefused) {
    ASSERT_TRUE(start_host()) << log();
    fill();
    kill();
    save_files();
    size_t refused = 0;
    size_t served = 0;
    for (const Damage& damage : all_damages()) {
        SCOPED_TRACE(damage.name);
        damage.act(dir());
        if (start_host()) {
            EXPECT_EQ(check_all(), "") << "begun with less, and nothing said";
            EXPECT_FALSE(damage.must_be_seen);
            ++served;
            kill();
            save_files();
        } else {
            ASSERT_FALSE(running());
            EXPECT_EQ(wait_for_end(), 1);
            EXPECT_NE(refusal().find("--salvage"), std::string::npos) << refusal();
            EXPECT_NE(refusal().find("extents"), std::string::npos) << refusal();
            ++refused;
        }
        restore_files();
        if (HasFatalFailure()) return;
    }
    EXPECT_GE(refused + served, 100u);
    EXPECT_GE(refused, 40u);
    ASSERT_TRUE(start_host()) << log();
    EXPECT_EQ(check_all(), "") << "refusing has changed nothing";
}

TEST_F(CatalogDamage, AnEarlierStateIsRefused) {
    // A clean end writes the journal's rows to the file; after a kill the journal would complete the earlier file.
    auto end = [&] {
        EXPECT_EQ(gshm_shutdown(client_.get(), GSHM_KEEP), 0) << gshm_last_error();
        EXPECT_EQ(wait_for_end(), 0);
    };
    ASSERT_TRUE(start_host()) << log();
    fill();
    end();
    save_files();
    ASSERT_TRUE(start_host()) << log();
    client_ = connect();
    put_object("later", 100, 5);
    end();
    restore_files();
    EXPECT_FALSE(start_host());
    EXPECT_NE(refusal().find("outdated"), std::string::npos) << refusal();
    ASSERT_TRUE(start_host({"--salvage"})) << log();
    EXPECT_EQ(check_all(), "");
}

TEST_F(CatalogDamage, DiscardBeginsWithNothing) {
    ASSERT_TRUE(start_host()) << log();
    fill();
    kill();
    fs::remove(db());
    EXPECT_FALSE(start_host());
    ASSERT_TRUE(start_host({"--discard"})) << log();
    client_ = connect();
    stat(client_.get(), "large0", -ENOENT);
    EXPECT_EQ(device(client_.get(), "host").used_bytes, 0u);
}

// All acknowledged bytes are in lost+found.
TEST_F(CatalogDamage, SalvageWithoutACatalogFindsTheBytes) {
    ASSERT_TRUE(start_host()) << log();
    fill();
    kill();
    for (const char* file : kFiles) fs::remove(dir() + "/" + file);
    EXPECT_FALSE(start_host());
    ASSERT_TRUE(start_host({"--salvage"})) << log();
    auto listed = run_cli({"ls", "lost+found"});
    ASSERT_EQ(listed.exit_code, 0) << listed.err;
    std::string all;
    Client client = connect();
    for (size_t at = 0; (at = listed.out.find("extent-", at)) != std::string::npos; ++at) {
        const std::string name = "lost+found/" + listed.out.substr(at, listed.out.find_first_of(" \n", at) - at);
        const gshm_stat_info info = stat(client.get(), name.c_str());
        EXPECT_EQ(info.uid, 0u);
        EXPECT_EQ(info.mode & 0777, 0600u);
        Object object = open(client.get(), name.c_str(), GSHM_NO_MAP);
        ASSERT_TRUE(object) << name;
        std::string content(gshm_size(object.get()), '\0');
        ASSERT_EQ(gshm_copy_out(object.get(), 0, content.data(), content.size()), 0) << gshm_last_error();
        all += content;
    }
    for (uint64_t i = 0; i < kSmall; ++i) EXPECT_NE(all.find(pattern(5000 + i, i)), std::string::npos) << small(i);
    for (uint64_t i = 0; i < kLarge; ++i)
        EXPECT_NE(all.find(pattern(kLargeBytes + i, 1000 + i)), std::string::npos) << large(i);
    // The state is an ordinary one again.
    kill();
    ASSERT_TRUE(start_host()) << log();
    EXPECT_EQ(run_cli({"ls", "lost+found"}).out, listed.out);
}

// Readable names are restored. A salvage that is killed is started again.
TEST_F(CatalogDamage, SalvageKeepsTheNamesThatCanBeRead) {
    ASSERT_TRUE(start_host()) << log();
    fill();
    kill();
    const uint64_t size = fs::file_size(db() + "-wal");
    fs::resize_file(db() + "-wal", size - size / 20);
    if (start_host()) {
        ASSERT_EQ(check_all(), "");
        GTEST_SKIP() << "the journal still had the rows that the file has lost";
    }
    ASSERT_TRUE(start_host({"--salvage"})) << log();
    Client client = connect();
    size_t named = 0;
    for (uint64_t i = 0; i < kSmall; ++i) named += holds(client.get(), small(i), 5000 + i, i) ? 1 : 0;
    EXPECT_GE(named, kSmall / 2);
    kill();
    ASSERT_TRUE(start_host()) << log();
}

// Of the settings, a salvage kept the first only.
TEST_F(CatalogDamage, SalvageKeepsTheOptions) {
    ASSERT_TRUE(start({"--device", "host", "--limit", "48M"})) << log();
    fill();
    kill();
    const uint64_t size = fs::file_size(db() + "-wal");
    fs::resize_file(db() + "-wal", size - size / 20);
    if (start({})) {
        ASSERT_EQ(check_all(), "");
        GTEST_SKIP() << "the journal still had the rows that the file has lost";
    }
    ASSERT_TRUE(start({"--salvage"})) << log();
    EXPECT_EQ(device(connect().get(), "host").capacity_bytes, uint64_t{48} << 20);
    kill();
    ASSERT_TRUE(start({})) << log();
    EXPECT_EQ(device(connect().get(), "host").capacity_bytes, uint64_t{48} << 20);
}

}  // namespace
}  // namespace gshm::core::test

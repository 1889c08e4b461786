// Formats that others rely on: a snapshot that 0.1 has written, and the keys of `--json`. See docs/compatibility.md.
#include <filesystem>
#include <map>
#include <sys/stat.h>

#include "integration/snapshot_fixture.h"

namespace gshm::core::test {
namespace {

namespace fs = std::filesystem;

const std::string kStored = GSHM_SOURCE_DIR "/tests/integration/stored";

class Compatibility : public SnapshotTest {
protected:
    // The stored snapshot, with the modes that `restore` requires.
    void copy_snapshot(const std::string& name) {
        fs::copy(kStored + "/" + name, saved());
        chmod(saved().c_str(), 0700);
        for (const auto& file : fs::directory_iterator(saved())) chmod(file.path().c_str(), 0600);
    }
};

TEST_F(Compatibility, ASnapshotOf01IsRestored) {
    copy_snapshot("snapshot-0.1");
    const auto checked = json({"restore", "--dry-run", saved()});
    EXPECT_EQ(checked["damaged_chunks"], 0);
    EXPECT_EQ(checked["left_out"][0]["name"], "dir/pipe");
    const auto restored = run_cli({"--json", "restore", saved()});
    EXPECT_EQ(restored.exit_code, 0) << restored.err;
    EXPECT_EQ(Json::parse(restored.out)["objects"], 5);
    std::string numbers;
    for (int i = 1; i <= 2000; ++i) numbers += std::to_string(i) + "\n";
    EXPECT_EQ(ok({"cat", "models/a"}), numbers);
    EXPECT_EQ(ok({"cat", "models/big"}), std::string(5'000'000, 'x'));
    EXPECT_EQ(ok({"cat", "open/kept"}), std::string(5000, 7));
    EXPECT_EQ(ok({"cat", "dir/file"}), "hello\n");
    EXPECT_EQ(ok({"cat", "dir/sub/hard"}), "hello\n");
    EXPECT_EQ(ok({"cat", "dir/empty"}), "");
    EXPECT_EQ(ok({"attr", "models/a", "colour"}), "red");
    EXPECT_EQ(ok({"attr", "models/a", "raw"}), std::string("\x00\xff\x10", 3));
    const auto sealed = stat("models/a");
    EXPECT_EQ(sealed["mode"], "0640");
    EXPECT_EQ(sealed["state"], "sealed");
    const auto open = stat("open/kept");
    EXPECT_EQ(open["state"], "open");
    EXPECT_EQ(open["flags"], Json::array({"keep"}));
    EXPECT_EQ(stat("dir/file")["id"], stat("dir/sub/hard")["id"]);
    if (geteuid() == 0) {
        EXPECT_EQ(stat("dir/file")["uid"], 1000);
    }
    const auto entries = json({"ls", "-r", "dir"})["entries"];
    EXPECT_TRUE(std::ranges::any_of(entries, [](const auto& entry) {
        return entry["name"] == "dir/sub/soft" && entry["kind"] == "symlink";
    })) << entries;
}

// Collects the keys of documents with the types of their values: "[]" stands for any element of an array.
class Keys {
public:
    void add(const std::string& path, const nlohmann::json& value) {
        if (value.is_object()) {
            for (const auto& [key, member] : value.items()) add(path + "." + key, member);
        } else if (value.is_array()) {
            types_[path + "[]"];
            for (const auto& element : value) add(path + "[]", element);
        } else {
            types_[path].insert(value.is_number() ? "number" : value.type_name());
        }
    }
    std::string text() const {
        std::string all;
        for (const auto& [path, types] : types_) {
            all += path;
            for (const auto& type : types) all += " " + type;
            all += "\n";
        }
        return all;
    }

private:
    std::map<std::string, std::set<std::string>> types_;
};

TEST_F(Compatibility, KeysOfJson) {
    Keys keys;
    auto add = [&](Args args, std::string_view input = {}) {
        const std::string name = args[0];
        args.insert(args.begin(), "--json");
        const auto result = run_cli(args, input);
        for (const auto* out : {&result.out, &result.err}) {
            // A document, or one a line.
            auto whole = Json::parse(*out, nullptr, false);
            if (name == "doctor" && whole.contains("checks")) {
                for (auto& check : whole["checks"]) check.erase("details");  // they depend on the machine
            }
            if (!whole.is_discarded()) {
                keys.add(name, whole);
                continue;
            }
            std::istringstream lines(*out);
            for (std::string line; std::getline(lines, line);) {
                auto document = Json::parse(line, nullptr, false);
                EXPECT_FALSE(document.is_discarded()) << name << ": " << line;
                if (!document.is_discarded()) keys.add(name, document);
            }
        }
        return result;
    };
    copy_snapshot("snapshot-0.1");
    const std::string file = scratch() + "/file";
    std::ofstream(file) << "text";
    add({"ping"});
    add({"doctor"});
    add({"devices"});
    add({"create", "a/b", "--size", "4K", "--mode", "0644"});
    add({"attr", "a/b", "key", "value"});
    add({"attr", "a/b", "-x", "binary", "00ff"});
    add({"attr", "a/b"});
    add({"attr", "a/b", "-d", "key"});
    add({"stat", "a/b", "a"});
    add({"mkdir", "a/d", "--mode", "0700"});
    add({"rm", "-r", "a/d"});
    add({"share", "a/b", "--to", "root,@12345"});
    add({"share", "a", "--to", "root"});
    add({"share", "a", "a/b"});
    add({"stat", "a", "a/b"});
    add({"unshare", "a", "a/b"});
    add({"write", "a/b"}, "bytes");
    add({"seal", "a/b"});
    add({"wait", "a/b"});
    add({"ttl", "a/b", "1h"});
    add({"stat", "a/b"});
    add({"ttl", "a/b", "off"});
    add({"pin", "a/b"});
    add({"unpin", "a/b"});
    add({"put", file, "p/f"});
    add({"put", file, file, "p/"});
    add({"get", "p/f", scratch() + "/copy"});
    add({"snapshot", scratch() + "/snapshot"});
    add({"restore", "--dry-run", saved()});
    add({"restore", saved()});
    add({"ls", "-r"});
    add({"watch", "a/b", "--existing", "--count", "1"});
    {
        // Held, named and unnamed.
        Client client = connect();
        gshm_object* object = nullptr;
        ASSERT_EQ(gshm_open(client.get(), "a/b", 0, &object), 0) << gshm_last_error();
        add({"holders", "a/b"});
        add({"mv", "a/b", "a/c"});
        add({"rm", "a/c"});
        add({"holders"});
        add({"df"});
        gshm_close(object);
    }
    EXPECT_EQ(add({"stat", "nowhere"}).exit_code, 4);
    add({"shutdown"});

    const std::string path = kStored + "/json-keys";
    const std::string found = keys.text();
    if (getenv("GSHM_WRITE_GOLDEN") != nullptr) std::ofstream(path) << found;
    // A line that is missing breaks programs. A further line is added to the file, with GSHM_WRITE_GOLDEN=1.
    EXPECT_EQ(read_file(path), found);
}

}  // namespace
}  // namespace gshm::core::test

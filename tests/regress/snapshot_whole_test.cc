// A snapshot with exit code 0 could hold names that a restore could not create: with more attributes than the library
// accepted, or nested too deep. Others (names with control bytes, attributes of directories, further names of symbolic
// links) were omitted silently.
#include <algorithm>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <random>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "mount/mount_fixture.h"
#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

// All visible properties of the names in the mount.
struct Sight {
    std::string text;
    ino_t inode;  // shows which names are the same file
};
using Seen = std::map<std::string, Sight>;

class SnapshotWhole : public ::testing::Test, protected MountFixture {
protected:
    using Json = nlohmann::json;

    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give files to others";
        for (const Way way : {Way::passthrough, Way::through}) {
            if (!missing_for(way).empty()) continue;
            way_ = way;
            ASSERT_TRUE(start_mounted(way_)) << log();
            return;
        }
        GTEST_SKIP() << missing_for(Way::through);
    }

    std::string saved() const { return scratch() + "/saved"; }

    // The names that were left out, with their reasons. The exit code shows whether there are any.
    std::map<std::string, std::string> snapshot() {
        const auto result = run_cli({"--json", "snapshot", saved()});
        std::map<std::string, std::string> left_out;
        const auto said = Json::parse(result.out, nullptr, false);
        EXPECT_FALSE(said.is_discarded()) << result.out << result.err;
        if (said.is_discarded()) return left_out;
        for (const auto& entry : said["left_out"]) left_out[entry["name"]] = entry["reason"];
        EXPECT_EQ(result.exit_code, left_out.empty() ? 0 : 10) << result.err;
        return left_out;
    }
    // As after a reboot: only the snapshot is left.
    void restore() {
        stop();
        ASSERT_TRUE(start_mounted(way_)) << log();
        const auto result = run_cli({"restore", saved()});
        EXPECT_EQ(result.exit_code, 0) << result.err;
    }

    gshm_client* client() {
        if (client_) return client_.get();
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        const auto folder = dir();
        options.dir = folder.c_str();
        gshm_client* made = nullptr;
        EXPECT_EQ(gshm_connect(&options, &made), 0) << gshm_last_error();
        client_.reset(made, gshm_disconnect);
        return made;
    }

    Seen look() {
        Seen seen;
        const int root = ::open(mount().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        EXPECT_GE(root, 0);
        look_into(root, "", seen);
        return seen;
    }

    // Creates a chain of directories, which may exceed the length of a path. Returns the last one.
    static int make_chain(int from, const std::string& part, int levels) {
        for (int i = 0; i < levels; ++i) {
            EXPECT_EQ(::mkdirat(from, part.c_str(), 0755), 0) << errno;
            const int next = ::openat(from, part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            EXPECT_GE(next, 0);
            ::close(from);
            from = next;
        }
        return from;
    }
    static void make_file(int folder, const std::string& name, const std::string& bytes, mode_t mode = 0644) {
        const int fd = ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        ASSERT_GE(fd, 0) << errno;
        EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        ::close(fd);
    }
    int open_root() const { return ::open(mount().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

    Way way_ = Way::through;

private:
    void look_into(int folder, const std::string& path, Seen& seen);
    static std::string describe(int folder, const std::string& name, const struct stat& info);
    static std::string attributes_of(int fd);

    std::shared_ptr<gshm_client> client_;
};

std::string SnapshotWhole::attributes_of(int fd) {
    std::string names(65536, '\0');
    const ssize_t length = ::flistxattr(fd, names.data(), names.size());
    if (length < 0) return "attributes: " + std::to_string(errno);
    names.resize(static_cast<size_t>(length));
    std::set<std::string> sorted;
    for (size_t begin = 0; begin < names.size();) {
        sorted.insert(names.c_str() + begin);
        begin = names.find('\0', begin) + 1;
    }
    sorted.insert({"user.device", "user.state"});  // not listed
    std::string text;
    for (const auto& name : sorted) {
        std::string value(65536, '\0');
        const ssize_t bytes = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
        value.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
        text += "\n  " + name + "=" + value;
    }
    return text;
}

std::string SnapshotWhole::describe(int folder, const std::string& name, const struct stat& info) {
    std::string text = "mode " + std::to_string(info.st_mode) + " owner " + std::to_string(info.st_uid) + ":" +
                       std::to_string(info.st_gid);
    if (S_ISLNK(info.st_mode)) {
        std::string target(5000, '\0');
        const ssize_t bytes = ::readlinkat(folder, name.c_str(), target.data(), target.size());
        target.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
        return text + " to " + target;
    }
    if (S_ISDIR(info.st_mode)) {
        const int fd = ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        text += attributes_of(fd);
        ::close(fd);
        return text;
    }
    if (!S_ISREG(info.st_mode)) return text + " number " + std::to_string(info.st_rdev);
    const int fd = ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC);
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), 0);
    text += " size " + std::to_string(count) + " hash " + std::to_string(std::hash<std::string>()(bytes));
    text += attributes_of(fd);
    ::close(fd);
    return text;
}

void SnapshotWhole::look_into(int folder, const std::string& path, Seen& seen) {
    DIR* listing = ::fdopendir(folder);
    ASSERT_NE(listing, nullptr);
    std::set<std::string> names;
    while (const auto* entry = ::readdir(listing)) names.insert(entry->d_name);
    for (const auto& name : names) {
        if (name == "." || name == "..") continue;
        const auto full = path.empty() ? name : path + "/" + name;
        struct stat info{};
        ASSERT_EQ(::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW), 0);
        seen[full] = {describe(folder, name, info), info.st_ino};
        if (S_ISDIR(info.st_mode))
            look_into(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), full, seen);
    }
    ::closedir(listing);
}

// Differences must be at or below a name that was reported as left out.
void expect_whole(const Seen& before, const Seen& after, const std::map<std::string, std::string>& left_out) {
    // Names that are not UTF-8 are escaped.
    const auto speakable = [](const std::string& name) {
        if (name.find('\xff') == name.npos) return name;
        std::string text;
        for (const char byte : name) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(byte));
            const bool plain = static_cast<unsigned char>(byte) >= 0x20 && byte != '\xff' && byte != 0x7f;
            text += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : plain ? std::string(1, byte) : escaped;
        }
        return text;
    };
    const auto is_listed = [&](const std::string& name) {
        for (size_t end = 0; end != name.npos;) {
            end = name.find('/', end + 1);
            if (left_out.contains(speakable(name.substr(0, end)))) return true;
        }
        return false;
    };
    std::map<ino_t, ino_t> there;  // the new inode of each old one
    std::map<ino_t, ino_t> back;
    for (const auto& [name, sight] : before) {
        const auto found = after.find(name);
        const std::string& was = sight.text;
        const std::string is = found == after.end() ? "not there" : found->second.text;
        if (found != after.end()) {
            const ino_t now = found->second.inode;
            EXPECT_EQ(there.emplace(sight.inode, now).first->second, now) << name << " was a name of another";
            EXPECT_EQ(back.emplace(now, sight.inode).first->second, sight.inode) << name << " was another file";
        }
        if (is == was) continue;
        EXPECT_TRUE(is_listed(name)) << name << " was\n" << was.substr(0, 200) << "\nand is\n" << is.substr(0, 200);
    }
    for (const auto& [name, sight] : after) EXPECT_TRUE(before.contains(name)) << name;
}

TEST_F(SnapshotWhole, AttributesOfAllSizes) {
    ASSERT_TRUE(write_file(at("file"), "bytes"));
    ASSERT_EQ(::chmod(at("file").c_str(), 0444), 0);
    for (int i = 0; i < 15; ++i) {
        ASSERT_EQ(set_attribute(at("file"), "user.large" + std::to_string(i), std::string(65536, static_cast<char>(i))),
                  0);
    }
    // More names than fit in a message, so that the library lists them in pages.
    ASSERT_TRUE(write_file(at("names"), ""));
    for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(set_attribute(at("names"), "user." + std::to_string(i) + std::string(200, 'n'), ""), 0);
    }
    ASSERT_EQ(::mkdir(at("folder").c_str(), 01777), 0);
    ASSERT_EQ(set_attribute(at("folder"), "user.kind", std::string("\0\xff\n", 3)), 0);
    const auto before = look();
    EXPECT_TRUE(snapshot().empty());
    restore();
    expect_whole(before, look(), {});
    std::string names(1 << 20, '\0');
    size_t bytes = 0;
    ASSERT_EQ(gshm_list_attributes(client(), "names", names.data(), names.size(), &bytes), 0) << gshm_last_error();
    EXPECT_EQ(std::count(names.begin(), names.begin() + static_cast<ptrdiff_t>(bytes), '\0'), 1000);
}

TEST_F(SnapshotWhole, NamesWithControlBytes) {
    for (const char* name : {"bell\a", "line\nbreak", "escape\x1b[31m", "delete\x7f", "c1 \xc2\x9b"}) {
        ASSERT_TRUE(write_file(at(name), name));
        ASSERT_EQ(::mkdir(at(name + std::string(".d")).c_str(), 0755), 0);
        ASSERT_EQ(::symlink(name, at(name + std::string(".link")).c_str()), 0);
    }
    const auto before = look();
    EXPECT_TRUE(snapshot().empty());
    restore();
    expect_whole(before, look(), {});
}

TEST_F(SnapshotWhole, DirectoriesAsDeepAsAPathCanBe) {
    // 2,047 directories of one letter and a file: 4,095 bytes.
    const int deep = make_chain(open_root(), "d", 2047);
    make_file(deep, "f", "deep", 0640);
    // The last part is so short that the temporary name of the restore does not fit.
    const int wide = make_chain(open_root(), std::string(254, 'w'), 16);
    make_file(wide, std::string(15, 'x'), std::string(5 << 20, 'x'), 04751);
    ::close(deep);
    ::close(wide);
    const auto before = look();
    EXPECT_TRUE(snapshot().empty());
    restore();
    expect_whole(before, look(), {});
}

TEST_F(SnapshotWhole, WhatCannotBeSavedIsListed) {
    const int last = make_chain(open_root(), std::string(250, 'l'), 17);
    make_file(last, "too-far", "");
    ::close(last);
    ASSERT_TRUE(write_file(at("kept"), "kept"));
    ASSERT_EQ(set_attribute(at("kept"), "user.\xff", "value"), 0);
    ASSERT_EQ(set_attribute(at("kept"), "user.plain", "value"), 0);
    ASSERT_TRUE(write_file(at("odd\xff"), "bytes"));
    ASSERT_EQ(::mkdir(at("odd-folder\xff").c_str(), 0755), 0);
    ASSERT_TRUE(write_file(at("odd-folder\xff/within"), "bytes"));
    ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
    const auto before = look();
    const auto left_out = snapshot();
    EXPECT_EQ(left_out.size(), 5u);
    EXPECT_EQ(left_out.at("pipe"), "it is a pipe, a socket or a device file");
    EXPECT_EQ(left_out.at("odd\\xff"), "its name is not UTF-8");
    EXPECT_EQ(left_out.at("odd-folder\\xff"), "its name is not UTF-8; its entries are not saved either");
    EXPECT_EQ(left_out.at("kept"), "its attribute \\xff, whose name is not UTF-8");
    // A restore also reports this.
    const auto checked = run_cli({"--json", "restore", "--dry-run", saved()});
    EXPECT_EQ(Json::parse(checked.out)["left_out"].size(), 5u) << checked.err;
    restore();
    expect_whole(before, look(), left_out);
    EXPECT_EQ(attribute(at("kept"), "user.plain"), "value");
}

// A random tree with all kinds of entries.
class AnyTree : public SnapshotWhole, public ::testing::WithParamInterface<unsigned> {
protected:
    size_t any(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
    bool one_in(size_t count) { return any(count) == 0; }
    std::string any_bytes(size_t most) {
        std::string bytes(any(most + 1), '\0');
        for (auto& byte : bytes) byte = static_cast<char>(random_());
        return bytes;
    }
    std::string any_name() {
        static const std::vector<std::string> kinds = {"plain",     ".hidden", "with space", "ünï",
                                                       "tab\tname", "\a\x1b",  "\xff",       std::string(240, 'l')};
        return kinds[any(kinds.size())] + std::to_string(next_++);
    }
    std::string any_folder() { return folders_[any(folders_.size())]; }
    std::string any_file() { return files_.empty() ? "" : files_[any(files_.size())]; }

    void make_one();
    void adorn(const std::string& path, bool file);

    std::mt19937_64 random_{GetParam()};
    std::vector<std::string> folders_ = {""};
    std::vector<std::string> files_;
    std::vector<std::string> symlinks_;
    int next_ = 0;
};

void AnyTree::adorn(const std::string& path, bool file) {
    for (size_t i = any(4); i > 0; --i) {
        const auto key = (one_in(20) ? "user.\xff" : "user.key") + std::to_string(i);
        ASSERT_EQ(set_attribute(path, key, one_in(3) ? std::string() : any_bytes(one_in(5) ? 60000 : 100)), 0);
    }
    if (one_in(3)) {
        ASSERT_EQ(::lchown(path.c_str(), static_cast<uid_t>(any(3) * 1000), static_cast<gid_t>(any(3) * 1000)), 0);
    }
    if (one_in(2)) {
        ASSERT_EQ(::chmod(path.c_str(), static_cast<mode_t>(any(010000))), 0);
    }
    if (file && one_in(4)) {
        ASSERT_EQ(set_attribute(path, "user.state", "sealed"), 0);
    }
}

void AnyTree::make_one() {
    const auto name = any_folder() + "/" + any_name();
    const auto path = mount() + name;
    switch (any(10)) {
        case 0:
        case 1:
            ASSERT_EQ(::mkdir(path.c_str(), 0755), 0) << name << errno;
            folders_.push_back(name);
            if (one_in(5)) {
                ASSERT_EQ(set_attribute(path, "user.device", "host"), 0);
            }
            return adorn(path, false);
        case 2: {
            static const std::vector<std::string> targets = {"plain0",   "/elsewhere", "../..",
                                                             "\xff\x01", "a\nb",       std::string(4000, 't')};
            ASSERT_EQ(::symlink(targets[any(targets.size())].c_str(), path.c_str()), 0);
            if (one_in(2)) {
                ASSERT_EQ(::lchown(path.c_str(), 77, 78), 0);
            }
            symlinks_.push_back(path);
            return;
        }
        case 3:
            if (!symlinks_.empty() && one_in(3)) {
                ASSERT_EQ(::link(symlinks_[any(symlinks_.size())].c_str(), path.c_str()), 0);
            } else if (!files_.empty()) {
                ASSERT_EQ(::link(any_file().c_str(), path.c_str()), 0);
            }
            return;
        case 4:
            if (one_in(3)) {
                ASSERT_EQ(::mknod(path.c_str(), one_in(2) ? S_IFIFO | 0640 : S_IFCHR | 0600, makedev(1, 3)), 0);
            }
            return;
        case 5: {  // by the library, which makes directories that are removed with their last entry
            const auto object_name = name.substr(1) + "-way/object";
            if (object_name.find('\xff') != object_name.npos) return;
            gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
            spec.name = object_name.c_str();
            const bool empty = one_in(5);
            spec.size_bytes = empty ? 0 : 1 + any(3 << 20);
            spec.flags = GSHM_KEEP | GSHM_NO_MAP | (empty ? uint32_t{GSHM_EMPTY} : 0);
            spec.mode = static_cast<uint32_t>(any(0777));
            gshm_object* object = nullptr;
            ASSERT_EQ(gshm_create(client(), &spec, &object), 0) << gshm_last_error();
            if (one_in(2)) {
                EXPECT_EQ(gshm_seal(object), 0) << gshm_last_error();
            }
            gshm_close(object);
            return;
        }
        default:
            ASSERT_TRUE(write_file(path, any_bytes(one_in(10) ? 6 << 20 : 3000))) << name;
            if (one_in(8)) {
                ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(any(9 << 20))), 0);
            }
            files_.push_back(path);
            return adorn(path, true);
    }
}

TEST_P(AnyTree, ComesBackButForWhatIsListed) {
    for (int i = 0; i < 120 && !HasFatalFailure(); ++i) make_one();
    ASSERT_EQ(gshm_ping(client()), 0);
    const auto before = look();
    const auto left_out = snapshot();
    for (const auto& [name, reason] : left_out) EXPECT_NE(reason, "") << name;
    restore();
    expect_whole(before, look(), left_out);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyTree, ::testing::Range(1u, 7u));

}  // namespace
}  // namespace gshm::core::test

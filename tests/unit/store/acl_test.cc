// ACLs by themselves, and in comparison with those of the kernel: a tmpfs decides on the same ACLs.
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <grp.h>
#include <linux/xattr.h>
#include <random>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "store/acl.h"
#include "store/tree.h"

namespace gshm::core::test {
namespace {

namespace fs = std::filesystem;
using Tag = AclTag;

int code_of(const auto& result) {
    return result ? 0 : result.error().code;
}

const AclEntries kGood = {{Tag::owner, 6, 0},  {Tag::user, 4, 1001}, {Tag::owning_group, 4, 0},
                          {Tag::group, 6, 50}, {Tag::mask, 6, 0},    {Tag::other, 0, 0}};

TEST(AclEntriesTest, AreCheckedAsTheKernelDoes) {
    EXPECT_TRUE(check_acl(kGood));
    EXPECT_TRUE(check_acl(acl_of_mode(0640)));
    const std::pair<const char*, AclEntries> bad[] = {
        {"none", {}},
        {"no owner", {{Tag::owning_group, 4, 0}, {Tag::other, 0, 0}}},
        {"no owning group", {{Tag::owner, 4, 0}, {Tag::other, 0, 0}}},
        {"no others", {{Tag::owner, 4, 0}, {Tag::owning_group, 4, 0}}},
        {"two owners", {{Tag::owner, 4, 0}, {Tag::owner, 4, 0}, {Tag::owning_group, 4, 0}, {Tag::other, 0, 0}}},
        {"two masks",
         {{Tag::owner, 4, 0}, {Tag::owning_group, 4, 0}, {Tag::mask, 4, 0}, {Tag::mask, 4, 0}, {Tag::other, 0, 0}}},
        {"no mask", {{Tag::owner, 4, 0}, {Tag::user, 4, 1}, {Tag::owning_group, 4, 0}, {Tag::other, 0, 0}}},
        {"not in order", {{Tag::owning_group, 4, 0}, {Tag::owner, 4, 0}, {Tag::other, 0, 0}}},
        {"unknown rights", {{Tag::owner, 8, 0}, {Tag::owning_group, 4, 0}, {Tag::other, 0, 0}}},
        {"unknown tag", {{Tag::owner, 4, 0}, {Tag(3), 4, 0}, {Tag::owning_group, 4, 0}, {Tag::other, 0, 0}}},
        {"an id too many", {{Tag::owner, 4, 7}, {Tag::owning_group, 4, 0}, {Tag::other, 0, 0}}},
        {"no user",
         {{Tag::owner, 4, 0},
          {Tag::user, 4, UINT32_MAX},
          {Tag::owning_group, 4, 0},
          {Tag::mask, 4, 0},
          {Tag::other, 0, 0}}},
    };
    for (const auto& [what, entries] : bad) EXPECT_EQ(code_of(check_acl(entries)), EINVAL) << what;
    AclEntries many = {{Tag::owner, 4, 0}};
    for (uint32_t i = 0; i < limits::kAclEntries; ++i) many.push_back({Tag::user, 4, i});
    EXPECT_EQ(code_of(check_acl(many)), E2BIG);
}

TEST(AclEntriesTest, AreCompletedAndSorted) {
    auto completed = complete_acl({{Tag::group, 2, 9}, {Tag::user, 4, 7}, {Tag::user, 1, 3}}, 0640);
    ASSERT_TRUE(completed);
    EXPECT_EQ(*completed, (AclEntries{{Tag::owner, 6, 0},
                                      {Tag::user, 1, 3},
                                      {Tag::user, 4, 7},
                                      {Tag::owning_group, 4, 0},
                                      {Tag::group, 2, 9},
                                      {Tag::mask, 7, 0},
                                      {Tag::other, 0, 0}}));
    EXPECT_EQ(*complete_acl(kGood, 0), kGood) << "nothing is missing";
    EXPECT_TRUE(complete_acl({}, 0640)->empty());
    EXPECT_EQ(code_of(complete_acl({{Tag::user, 4, 7}, {Tag::user, 1, 7}}, 0)), EINVAL);
    EXPECT_EQ(code_of(complete_acl({{Tag(64), 4, 7}}, 0)), EINVAL);
    EXPECT_EQ(code_of(complete_acl({{Tag::user, 9, 7}}, 0)), EINVAL);
}

TEST(AclEntriesTest, AreTheKernelsBytes) {
    const std::string bytes = encode_acl(kGood);
    ASSERT_EQ(bytes.size(), 4 + 8 * kGood.size());
    EXPECT_EQ(*decode_acl(bytes), kGood);
    EXPECT_TRUE(decode_acl(encode_acl({}))->empty());
    EXPECT_EQ(code_of(decode_acl("")), EINVAL);
    EXPECT_EQ(code_of(decode_acl(bytes.substr(0, 3))), EINVAL);
    EXPECT_EQ(code_of(decode_acl(bytes.substr(0, bytes.size() - 1))), EINVAL);
    std::string other = bytes;
    other[0] = 3;
    EXPECT_EQ(code_of(decode_acl(other)), EOPNOTSUPP);
    other = bytes;
    other[4] = 3;
    EXPECT_EQ(code_of(decode_acl(other)), EINVAL) << "an unknown tag";
    EXPECT_EQ(code_of(decode_acl(std::string("\2\0\0\0", 4) + std::string((limits::kAclEntries + 1) * 8, '\1'))),
              E2BIG);
    // Any bytes are refused, or are what encode_acl() makes of them.
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {
        std::string some = bytes;
        for (unsigned changes = random() % 4; changes-- > 0;)
            some[random() % some.size()] = static_cast<char>(random() % 40);
        auto decoded = decode_acl(some);
        EXPECT_TRUE(!decoded || decoded->empty() || check_acl(*decoded));
    }
}

TEST(AclTableTest, EqualAclsAreOneCopy) {
    AclTable table;
    {
        const AclPointer a = table.intern(kGood);
        const AclPointer b = table.intern(kGood);
        EXPECT_EQ(a, b);
        EXPECT_EQ(table.count(), 1u);
        AclEntries less = kGood;
        less[1].rights = 0;
        const AclPointer c = table.intern(less);
        EXPECT_NE(a, c);
        EXPECT_NE(a->digest(), c->digest());
        EXPECT_EQ(table.count(), 2u);
        AclPointer moved = table.intern(less);
        moved = a;
        EXPECT_EQ(table.count(), 2u);
    }
    EXPECT_EQ(table.count(), 0u);
    EXPECT_FALSE(table.intern({}));
}

TEST(AclModeTest, AModeWithoutTheAclPermitsNobodyMore) {
    AclTable table;
    std::mt19937 random(2);
    for (int i = 0; i < 5'000; ++i) {
        AclEntries entries = {{Tag::owner, static_cast<uint16_t>(random() % 8), 0}};
        for (uint32_t id = 1; id <= random() % 4; ++id)
            entries.push_back({Tag::user, static_cast<uint16_t>(random() % 8), id});
        entries.push_back({Tag::owning_group, static_cast<uint16_t>(random() % 8), 0});
        for (uint32_t id = 1; id <= random() % 3; ++id)
            entries.push_back({Tag::group, static_cast<uint16_t>(random() % 8), id});
        entries.push_back({Tag::mask, static_cast<uint16_t>(random() % 8), 0});
        entries.push_back({Tag::other, static_cast<uint16_t>(random() % 8), 0});
        Special node(1, S_IFIFO, 0);
        node.uid = 9;
        node.gid = 9;
        node.mode = static_cast<uint16_t>(mode_for_acl(entries, 0));
        Special shown(2, S_IFIFO, 0);
        shown.uid = 9;
        shown.gid = 9;
        shown.mode = static_cast<uint16_t>(mode_without_acl(entries, node.mode));
        node.acl = table.intern(entries);
        for (uid_t uid = 1; uid < 6; ++uid) {
            for (gid_t gid : {1u, 2u, 3u, 9u}) {
                const Credentials who{uid, gid, 1, {9, 2}};
                const Credentials alone{uid, gid, 1, {}};
                for (const auto& one : {who, alone}) {
                    for (unsigned right : {1u, 2u, 4u}) {
                        // The kernel does not look at an ACL without rights of the group class: the mode decides.
                        if ((node.mode & 070) == 0) continue;
                        EXPECT_LE(is_permitted(shown, one, right), is_permitted(node, one, right));
                    }
                }
            }
        }
    }
}

// ---- the kernel as the judge ----

class KernelAcls : public ::testing::Test {
protected:
    static constexpr uid_t kOwner = 1000;
    static constexpr gid_t kGroup = 100;

    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
        std::string pattern = "/dev/shm/gshm-acl-XXXXXX";
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
        const std::string bytes = encode_acl(kGood);
        if (setxattr(folder_.c_str(), XATTR_NAME_POSIX_ACL_DEFAULT, bytes.data(), bytes.size(), 0) != 0) {
            GTEST_SKIP() << "/dev/shm has no ACLs: " << strerror(errno);
        }
        ASSERT_EQ(removexattr(folder_.c_str(), XATTR_NAME_POSIX_ACL_DEFAULT), 0);
        umask_ = umask(0);
    }
    void TearDown() override {
        if (!folder_.empty()) fs::remove_all(folder_);
        umask(umask_);
    }

    // Ids that the users of the test have, and others.
    AclEntries some_acl() {
        auto rights = [&] { return static_cast<uint16_t>(random_() % 8); };
        AclEntries entries = {{Tag::owner, rights(), 0}};
        const bool names = random_() % 8 != 0;
        if (names && random_() % 2) entries.push_back({Tag::user, rights(), 1001});
        if (names && random_() % 2) entries.push_back({Tag::user, rights(), 1002});
        if (names && random_() % 4 == 0) entries.push_back({Tag::user, rights(), kOwner});
        entries.push_back({Tag::owning_group, rights(), 0});
        if (names && random_() % 2) entries.push_back({Tag::group, rights(), 200});
        if (names && random_() % 2) entries.push_back({Tag::group, rights(), 300});
        if (names && random_() % 4 == 0) entries.push_back({Tag::group, rights(), kGroup});
        if (!is_mode_only(entries) || random_() % 2) entries.push_back({Tag::mask, rights(), 0});
        entries.push_back({Tag::other, rights(), 0});
        return entries;
    }
    // Of the kernel; none if it has the mode alone.
    static AclEntries acl_of(const std::string& path, const char* name) {
        char bytes[4096];
        const ssize_t length = getxattr(path.c_str(), name, bytes, sizeof bytes);
        if (length < 0) return {};
        auto decoded = decode_acl({bytes, static_cast<size_t>(length)});
        EXPECT_TRUE(decoded) << decoded.error().message;
        return decoded ? *decoded : AclEntries{};
    }
    static uint32_t mode_of(const std::string& path) {
        struct stat status = {};
        EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
        return status.st_mode & 07777;
    }
    static void set(const std::string& path, const char* name, const AclEntries& entries) {
        const std::string bytes = encode_acl(entries);
        ASSERT_EQ(setxattr(path.c_str(), name, bytes.data(), bytes.size(), 0), 0) << strerror(errno);
    }
    static AclEntries entries_of(const AclPointer& acl) { return acl ? acl->entries() : AclEntries{}; }

    std::string folder_;
    mode_t umask_ = 0;
    std::mt19937 random_{3};
    AclTable table_;
};

TEST_F(KernelAcls, PermitTheSame) {
    struct Case {
        std::string path;
        std::unique_ptr<Special> node;
    };
    std::vector<Case> cases;
    for (int i = 0; i < 600; ++i) {
        const std::string path = folder_ + "/" + std::to_string(i);
        close(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        ASSERT_EQ(chown(path.c_str(), kOwner, kGroup), 0);
        const AclEntries entries = some_acl();
        set(path, XATTR_NAME_POSIX_ACL_ACCESS, entries);
        auto node = std::make_unique<Special>(1, S_IFIFO, 0);
        node->uid = kOwner;
        node->gid = kGroup;
        node->mode = static_cast<uint16_t>(mode_for_acl(entries, 0600));
        EXPECT_EQ(node->mode, mode_of(path));
        if (!is_mode_only(entries)) node->acl = table_.intern(entries);
        EXPECT_EQ(entries_of(node->acl), acl_of(path, XATTR_NAME_POSIX_ACL_ACCESS));
        cases.push_back({path, std::move(node)});
    }
    const Credentials users[] = {
        {kOwner, 100, 1, {}},        {1001, 1001, 1, {}},        {1001, 100, 1, {200}}, {1002, 200, 1, {300, 100}},
        {1003, 1003, 1, {}},         {1003, 100, 1, {}},         {1003, 200, 1, {}},    {1003, 1003, 1, {300}},
        {1003, 1003, 1, {200, 300}}, {1003, 100, 1, {200, 300}},
    };
    for (const Credentials& who : users) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            int differ = 0;
            const bool became =
                setgroups(who.groups.size(), who.groups.data()) == 0 && setgid(who.gid) == 0 && setuid(who.uid) == 0;
            for (const Case& one : cases) {
                for (unsigned rights = 1; became && rights < 8; ++rights) {
                    const int how = static_cast<int>(rights);  // R_OK, W_OK and X_OK are these bits
                    const bool allowed = access(one.path.c_str(), how) == 0;
                    if (allowed != is_permitted(*one.node, who, rights)) ++differ;
                }
            }
            _exit(!became ? 255 : std::min(differ, 254));
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << "uid " << who.uid << " gid " << who.gid << ": " << WEXITSTATUS(status)
                             << " decisions differ";
    }
}

TEST_F(KernelAcls, AreInheritedAlike) {
    for (int i = 0; i < 400; ++i) {
        const std::string directory = folder_ + "/" + std::to_string(i);
        ASSERT_EQ(mkdir(directory.c_str(), 0755), 0);
        const AclEntries inherited = i % 8 == 0 ? AclEntries{} : some_acl();
        if (!inherited.empty()) set(directory, XATTR_NAME_POSIX_ACL_DEFAULT, inherited);
        const mode_t mode = random_() % 01000;
        const mode_t mask = random_() % 4 == 0 ? random_() % 01000 : 022;
        const AclPointer from = table_.intern(inherited);
        umask(mask);
        const std::string file = directory + "/file";
        close(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, mode));
        mkdir((directory + "/directory").c_str(), mode);
        umask(0);
        for (const bool is_directory : {false, true}) {
            const std::string path = is_directory ? directory + "/directory" : file;
            const InheritedRights ours = inherit_rights(table_, from, mode, mask, is_directory);
            EXPECT_EQ(ours.mode, mode_of(path)) << path;
            EXPECT_EQ(entries_of(ours.access), acl_of(path, XATTR_NAME_POSIX_ACL_ACCESS)) << path;
            EXPECT_EQ(entries_of(ours.inherited), acl_of(path, XATTR_NAME_POSIX_ACL_DEFAULT)) << path;
        }
    }
}

TEST_F(KernelAcls, FollowChmodAlike) {
    const std::string path = folder_ + "/file";
    for (int i = 0; i < 400; ++i) {
        close(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        const AclEntries entries = some_acl();
        set(path, XATTR_NAME_POSIX_ACL_ACCESS, entries);
        const mode_t mode = random_() % 01000;
        ASSERT_EQ(chmod(path.c_str(), mode), 0);
        const AclPointer before = is_mode_only(entries) ? AclPointer() : table_.intern(entries);
        EXPECT_EQ(entries_of(acl_for_mode(table_, before, mode)), acl_of(path, XATTR_NAME_POSIX_ACL_ACCESS));
        // Removed as `setfattr -x` does: the mode stays.
        if (before) {
            ASSERT_EQ(removexattr(path.c_str(), XATTR_NAME_POSIX_ACL_ACCESS), 0);
            EXPECT_EQ(mode_of(path), mode);
        }
        fs::remove(path);
    }
}

}  // namespace
}  // namespace gshm::core::test

// ACLs as the kernel asks for them and sets them, with and without the features that it negotiates for them.
#include <linux/xattr.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "store/acl.h"
#include "support/fuse_rig.h"

namespace gshm::core::test {
namespace {

using Tag = AclTag;

const AclEntries kEntries = {{Tag::owner, 7, 0},
                             {Tag::user, 6, 1001},
                             {Tag::owning_group, 4, 0},
                             {Tag::mask, 7, 0},
                             {Tag::other, 1, 0}};

class FuseAcls : public ::testing::TestWithParam<bool> {
protected:
    FuseAcls() : rig_({.files = false, .passthrough = false, .acls = GetParam()}) {}

    RigAnswer set(NodeId node, std::string_view name, std::string_view value, uint32_t acl_flags = 0) {
        RigRequest request(FUSE_SETXATTR, node);
        request.add(static_cast<uint32_t>(value.size())).add(uint32_t{0});
        if (GetParam()) request.add(acl_flags).add(uint32_t{0});
        return rig_.ask(request.add_text(name).add_bytes(value));
    }
    std::string get(NodeId node, std::string_view name, int* ret_error = nullptr) {
        fuse_getxattr_in in = {};
        in.size = 4096;
        const auto answer = rig_.ask(RigRequest(FUSE_GETXATTR, node).add(in).add_text(name));
        if (ret_error != nullptr) *ret_error = answer.error;
        return answer.error == 0 ? answer.body : "";
    }
    int remove(NodeId node, std::string_view name) {
        return rig_.ask(RigRequest(FUSE_REMOVEXATTR, node).add_text(name)).error;
    }
    uint32_t mode_of(NodeId node) { return rig_.get_attributes(node).part<fuse_attr_out>().attr.mode & 07777; }
    NodeId make_directory(std::string_view name, uint32_t mode, uint32_t umask, NodeId parent = Files::kRoot) {
        fuse_mkdir_in in = {};
        in.mode = mode;
        in.umask = umask;
        return rig_.ask(RigRequest(FUSE_MKDIR, parent).add(in).add_text(name)).node();
    }

    FuseRig rig_;
};
INSTANTIATE_TEST_SUITE_P(Kernel, FuseAcls, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "WithAcls" : "Without"; });

TEST_P(FuseAcls, AreSetReadListedAndRemoved) {
    const NodeId file = rig_.create("file", 0, 02640).node();
    EXPECT_EQ(mode_of(file), 02640u);
    int error = 0;
    get(file, XATTR_NAME_POSIX_ACL_ACCESS, &error);
    EXPECT_EQ(error, ENODATA);
    ASSERT_EQ(set(file, XATTR_NAME_POSIX_ACL_ACCESS, encode_acl(kEntries), FUSE_SETXATTR_ACL_KILL_SGID).error, 0);
    EXPECT_EQ(get(file, XATTR_NAME_POSIX_ACL_ACCESS), encode_acl(kEntries));
    // A kernel that knows no ACLs decides by the mode: it permits no user more.
    EXPECT_EQ(mode_of(file), GetParam() ? 0771u : 02740u);
    fuse_getxattr_in in = {};
    in.size = 4096;
    const auto listed = rig_.ask(RigRequest(FUSE_LISTXATTR, file).add(in)).body;
    EXPECT_EQ(listed, std::string(XATTR_NAME_POSIX_ACL_ACCESS) + '\0');
    EXPECT_EQ(set(file, XATTR_NAME_POSIX_ACL_DEFAULT, encode_acl(kEntries)).error, EACCES);
    EXPECT_EQ(set(file, XATTR_NAME_POSIX_ACL_ACCESS, "garbage").error, EOPNOTSUPP);
    EXPECT_EQ(set(file, XATTR_NAME_POSIX_ACL_ACCESS, "").error, EINVAL);
    EXPECT_EQ(set(file, "system.other", "x").error, EOPNOTSUPP);
    ASSERT_EQ(set(file, "user.plain", "value").error, 0);
    EXPECT_EQ(get(file, "user.plain"), "value");
    EXPECT_EQ(remove(file, XATTR_NAME_POSIX_ACL_ACCESS), 0);
    EXPECT_EQ(remove(file, XATTR_NAME_POSIX_ACL_ACCESS), ENODATA);
    EXPECT_EQ(mode_of(file), GetParam() ? 0771u : 02771u);
}

TEST_P(FuseAcls, ADefaultAclTakesThePlaceOfTheUmask) {
    const NodeId plain = make_directory("plain", 0777, 022);
    EXPECT_EQ(mode_of(plain), 0755u);
    ASSERT_EQ(set(plain, XATTR_NAME_POSIX_ACL_DEFAULT, encode_acl(kEntries)).error, 0);
    const NodeId below = make_directory("below", 0777, 077, plain);
    EXPECT_EQ(get(below, XATTR_NAME_POSIX_ACL_ACCESS), encode_acl(kEntries));
    EXPECT_EQ(get(below, XATTR_NAME_POSIX_ACL_DEFAULT), encode_acl(kEntries));
    fuse_mknod_in in = {};
    in.mode = S_IFREG | 0640;
    in.umask = 077;
    const NodeId file = rig_.ask(RigRequest(FUSE_MKNOD, below).add(in).add_text("file")).node();
    AclEntries limited = kEntries;
    limited[0].rights = 6;
    limited[3].rights = 4;
    limited[4].rights = 0;
    EXPECT_EQ(get(file, XATTR_NAME_POSIX_ACL_ACCESS), encode_acl(limited));
    ASSERT_EQ(remove(below, XATTR_NAME_POSIX_ACL_DEFAULT), 0);
    in.umask = 022;
    in.mode = S_IFIFO | 0666;
    EXPECT_EQ(mode_of(rig_.ask(RigRequest(FUSE_MKNOD, below).add(in).add_text("pipe")).node()), 0644u);
}

TEST_P(FuseAcls, AreThereAfterAKill) {
    const NodeId file = rig_.create("file", 0, 0640).node();
    ASSERT_EQ(set(file, XATTR_NAME_POSIX_ACL_ACCESS, encode_acl(kEntries)).error, 0);
    rig_.kill_at(KillPoint::answer);
    AclEntries other = kEntries;
    other[1].rights = 0;
    EXPECT_FALSE(set(file, XATTR_NAME_POSIX_ACL_ACCESS, encode_acl(other)).given);
    rig_.restart();
    auto again = rig_.resend();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].error, 0);
    EXPECT_EQ(get(file, XATTR_NAME_POSIX_ACL_ACCESS), encode_acl(other));
    rig_.restart();
    EXPECT_EQ(get(file, XATTR_NAME_POSIX_ACL_ACCESS), encode_acl(other));
}

}  // namespace
}  // namespace gshm::core::test

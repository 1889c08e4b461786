// A wait was notified only by requests with the same name. It missed changes under another name of the same entry:
// through a symbolic link, below a directory that was renamed in the mount, or on the other side of an exchange.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "mount/mount_fixture.h"
#include "wire/message.h"
#include "wire/version.h"
#include <gshm/gshm.h>

namespace gshm::core::test {
namespace {

class WaitRegress : public ::testing::Test, protected MountFixture {
protected:
    void SetUp() override {
        for (const Way way : {Way::passthrough, Way::through}) {
            if (!missing_for(way).empty()) continue;
            ASSERT_TRUE(start_mounted(way)) << log();
            gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
            const auto folder = dir();
            options.dir = folder.c_str();
            ASSERT_EQ(gshm_connect(&options, &client_), 0) << gshm_last_error();
            return;
        }
        GTEST_SKIP() << missing_for(Way::through);
    }
    void TearDown() override { gshm_disconnect(client_); }

    // A connection that waits for a name. The wait has begun in the daemon when the constructor returns.
    class Waiting {
    public:
        Waiting(const std::string& socket_path, const std::string& name, bool sealed) {
            auto connected = wire::connect_to(socket_path);
            EXPECT_TRUE(connected);
            if (!connected) return;
            socket_ = std::move(*connected);
            ask(1, wire::RequestBody::Hello, [](auto& builder) {
                return wire::CreateHello(builder, wire::kProtocolHighest, builder.CreateString("test")).Union();
            });
            EXPECT_EQ(answered(), 1u);
            ask(2, wire::RequestBody::Wait, [&](auto& builder) {
                return wire::CreateWait(builder, builder.CreateString(name), sealed, -1).Union();
            });
            ask(3, wire::RequestBody::Ping, [](auto& builder) { return wire::CreatePing(builder).Union(); });
            EXPECT_EQ(answered(), 3u) << name << " is there already";
        }
        bool is_told() { return answered() == 2; }

    private:
        using Build = std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>;
        void ask(uint64_t id, wire::RequestBody kind, const Build& build) {
            flatbuffers::FlatBufferBuilder builder;
            auto packet = wire::finish_request(builder, id, kind, build(builder));
            EXPECT_TRUE(wire::send_packet(socket_.get(), packet, {}, true));
        }
        // The id of the next reply, unless it is an error; 0: there is none.
        uint64_t answered() {
            std::vector<uint8_t> buffer(limits::kMessageBytes);
            pollfd ready = {socket_.get(), POLLIN, 0};
            if (poll(&ready, 1, 120'000) != 1) return 0;
            auto received = wire::receive_packet(socket_.get(), buffer, true);
            if (!received || received->end) return 0;
            auto reply = wire::decode_reply({buffer.data(), received->bytes});
            EXPECT_TRUE(reply);
            return reply && (*reply)->error() == 0 ? (*reply)->id() : 0;
        }
        UniqueFd socket_;
    };
    Waiting wait_for(const std::string& name, bool sealed = false) { return Waiting(socket_path(), name, sealed); }
    gshm_object* create(const char* name, uint32_t flags = GSHM_KEEP) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name;
        spec.size_bytes = 100;
        spec.flags = flags | GSHM_NO_MAP;
        gshm_object* made = nullptr;
        EXPECT_EQ(gshm_create(client_, &spec, &made), 0) << gshm_last_error();
        return made;
    }
    void make(const char* name) { gshm_close(create(name)); }

    gshm_client* client_ = nullptr;
};

TEST_F(WaitRegress, ThroughASymbolicLink) {
    ASSERT_EQ(mkdir(at("real").c_str(), 0755), 0);
    ASSERT_EQ(symlink("real", at("link").c_str()), 0);
    auto waiting = wait_for("link/x"), sealed = wait_for("link/x", true);
    make("real/x");
    EXPECT_TRUE(waiting.is_told());
    ASSERT_EQ(gshm_seal_name(client_, "real/x"), 0) << gshm_last_error();
    EXPECT_TRUE(sealed.is_told());
    auto given = wait_for("link/given");
    gshm_object* unnamed = create("real/given", GSHM_UNNAMED);
    ASSERT_EQ(gshm_replace(unnamed, "real/given"), 0) << gshm_last_error();
    gshm_close(unnamed);
    EXPECT_TRUE(given.is_told());
    auto by_mount = wait_for("link/file");
    ASSERT_TRUE(write_file(at("real/file"), "bytes", O_CREAT));
    EXPECT_TRUE(by_mount.is_told());
    auto link_made = wait_for("later/x");
    ASSERT_EQ(symlink("real", at("later").c_str()), 0);
    EXPECT_TRUE(link_made.is_told());
}

TEST_F(WaitRegress, AnExchangeHasTwoSides) {
    make("a/x");
    make("b/y");
    auto first = wait_for("a/y"), second = wait_for("b/x");
    ASSERT_EQ(renameat2(AT_FDCWD, at("a").c_str(), AT_FDCWD, at("b").c_str(), RENAME_EXCHANGE), 0);
    EXPECT_TRUE(first.is_told());
    EXPECT_TRUE(second.is_told());
}

TEST_F(WaitRegress, ByADirectoryAndByAFurtherName) {
    make("a/deep/x");
    auto by_library = wait_for("b/deep/x"), by_mount = wait_for("c/deep/x"), further = wait_for("d/further"),
         further_by_mount = wait_for("hard");
    ASSERT_EQ(gshm_rename(client_, "a", "b", 0), 0) << gshm_last_error();
    EXPECT_TRUE(by_library.is_told());
    ASSERT_EQ(rename(at("b").c_str(), at("c").c_str()), 0);
    EXPECT_TRUE(by_mount.is_told());
    ASSERT_EQ(gshm_link(client_, "c/deep/x", "d/further"), 0) << gshm_last_error();
    EXPECT_TRUE(further.is_told());
    ASSERT_EQ(link(at("d/further").c_str(), at("hard").c_str()), 0);
    EXPECT_TRUE(further_by_mount.is_told());
}

}  // namespace
}  // namespace gshm::core::test

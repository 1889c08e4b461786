// systemd as the keeper, simulated by the test: a notify socket that accepts descriptors, and a start with those in its
// store. sd_notify(3), "File Descriptor Store", documents that systemd does the same.
#include <map>
#include <poll.h>

#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class Systemd : public LibraryTest {
protected:
    void SetUp() override {
        path_ = scratch() + "/notify";
        socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
        ASSERT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        // gshmd would wait if more datagrams were sent than the queue holds.
        listener_ = std::thread([this] {
            while (!ending_) {
                pollfd readable{socket_, POLLIN, 0};
                if (poll(&readable, 1, 10) > 0) take_one();
            }
        });
    }
    void TearDown() override {
        if (running()) stop();
        ending_ = true;
        listener_.join();
        for (const auto& [name, fd] : store_) ::close(fd);
        ::close(socket_);
    }

    // Like `systemctl start`, or a restart after a crash: with the descriptors of the store.
    bool start_service(const std::string& mountpoint = {}) {
        std::lock_guard lock(mutex_);
        std::string names;
        std::vector<std::string> argv{"/bin/bash", "-c"};
        std::string script;
        int next = 3;
        // First above the descriptors in use here, then from 3 on.
        std::vector<int> high;
        for (const auto& [name, fd] : store_) {
            high.push_back(fcntl(fd, F_DUPFD, 500));
            script += "exec " + std::to_string(next) + "<&" + std::to_string(high.back()) + " " +
                      std::to_string(high.back()) + "<&-; ";
            names += (names.empty() ? "" : ":") + name;
            ++next;
        }
        script += "export LISTEN_PID=$$ LISTEN_FDS=" + std::to_string(store_.size()) + " LISTEN_FDNAMES='" + names +
                  "' NOTIFY_SOCKET=" + path_ + "; exec \"$@\"";
        ready_ = false;
        std::vector<std::string> options{"--device", "host:256M", "--keeper", "systemd"};
        if (!mountpoint.empty()) options.insert(options.begin(), mountpoint);
        bool started = start(options, {}, {"/bin/bash", "-c", script, "service"});
        for (int fd : high) ::close(fd);
        return started;
    }
    size_t stored() {
        std::lock_guard lock(mutex_);
        return store_.size();
    }
    template <typename Condition>
    static bool eventually(Condition condition) {
        for (int looks = 0; looks < 5000; ++looks) {
            if (condition()) return true;
            std::this_thread::sleep_for(2ms);
        }
        return false;
    }

    std::atomic<bool> ready_ = false;

private:
    void take_one() {
        char text[4096] = {};
        iovec part{text, sizeof text - 1};
        alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))];
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = space;
        message.msg_controllen = sizeof space;
        if (recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) <= 0) return;
        int fd = -1;
        if (cmsghdr* head = CMSG_FIRSTHDR(&message)) memcpy(&fd, CMSG_DATA(head), sizeof fd);
        const std::string said = text;
        const size_t at = said.find("FDNAME=");
        const std::string name = at == std::string::npos ? "" : said.substr(at + 7, said.find('\n', at) - at - 7);
        std::lock_guard lock(mutex_);
        if (said.find("READY=1") != std::string::npos) ready_ = true;
        if (said.find("FDSTORE=1") != std::string::npos) {
            EXPECT_NE(said.find("FDPOLL=0"), std::string::npos) << said;
            EXPECT_GE(fd, 0);
            if (auto old = store_.find(name); old != store_.end()) ::close(old->second);
            store_[name] = std::exchange(fd, -1);
        } else if (said.find("FDSTOREREMOVE=1") != std::string::npos) {
            if (auto old = store_.find(name); old != store_.end()) {
                ::close(old->second);
                store_.erase(old);
            }
        }
        if (fd >= 0) ::close(fd);  // BARRIER=1 needs only the close
    }

    std::string path_;
    int socket_ = -1;
    std::atomic<bool> ending_ = false;
    std::mutex mutex_;
    std::map<std::string, int> store_;
    std::thread listener_;
};

TEST_F(Systemd, HoldsWhatAKilledServiceHad) {
    ASSERT_TRUE(start_service()) << log();
    EXPECT_TRUE(eventually([&] { return ready_.load(); }));
    client_ = connect();
    auto held = create(client_.get(), "small", 5000, "host", GSHM_KEEP);
    auto large = create(client_.get(), "large", 3 << 20, "host", GSHM_KEEP);
    ASSERT_EQ(gshm_fill(held.get(), 0, 5000, 3), 0);
    ASSERT_EQ(gshm_fill(large.get(), 0, 3 << 20, 4), 0);
    EXPECT_EQ(keeper_pid(), 0) << "there is no other keeper";
    for (int round = 0; round < 3; ++round) {
        EXPECT_TRUE(eventually([&] { return stored() >= 2; }));
        kill();
        ASSERT_TRUE(start_service()) << log();
        EXPECT_TRUE(eventually([&] { return ready_.load(); }));
        auto other = connect();
        gshm_object* opened = nullptr;
        ASSERT_EQ(gshm_open(other.get(), "large", 0, &opened), 0) << gshm_last_error();
        uint8_t byte = 0;
        EXPECT_EQ(gshm_copy_out(opened, (3 << 20) - 1, &byte, 1), 0);
        EXPECT_EQ(byte, 4);
        gshm_close(opened);
        EXPECT_EQ(gshm_fill(held.get(), 0, 5000, 3), 0) << "a handle from before: " << gshm_last_error();
    }
}

TEST_F(Systemd, TheMountGoesOn) {
    const std::string mountpoint = scratch() + "/mnt";
    ASSERT_EQ(mkdir(mountpoint.c_str(), 0755), 0);
    if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0)
        GTEST_SKIP() << "only root mounts here, with /dev/fuse";
    ASSERT_TRUE(start_service(mountpoint)) << log();
    const std::string path = mountpoint + "/f";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_GE(fd, 0) << strerror(errno);
    for (char round = 'a'; round <= 'c'; ++round) {
        const std::string bytes(100'000, round);
        EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size())) << strerror(errno);
        EXPECT_TRUE(eventually([&] { return stored() >= 3; })) << "the file's memory, its folder and the mount";
        if (round == 'b') EXPECT_EQ(stop(), 0);  // SIGTERM, as from `systemctl restart`
        else kill();
        ASSERT_TRUE(start_service(mountpoint)) << log();
        std::string got(bytes.size(), '?');
        EXPECT_EQ(pread(fd, got.data(), got.size(), 0), static_cast<ssize_t>(got.size())) << strerror(errno);
        EXPECT_EQ(got, bytes);
    }
    ::close(fd);
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_TRUE(eventually([&] { return stored() == 0; }));
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(Systemd, ARestartKeepsAndAShutdownDoesNot) {
    ASSERT_TRUE(start_service()) << log();
    client_ = connect();
    ASSERT_TRUE(create(client_.get(), "a", 5000, "host", GSHM_KEEP));
    EXPECT_EQ(stop(), 0);  // SIGTERM, as from `systemctl restart`
    EXPECT_TRUE(eventually([&] { return stored() >= 1; }));
    ASSERT_TRUE(start_service()) << log();
    EXPECT_EQ(run_cli({"ls"}).out, "a\n");
    EXPECT_EQ(run_cli({"shutdown"}).exit_code, 0);
    EXPECT_EQ(wait_for_end(), 0);
    EXPECT_TRUE(eventually([&] { return stored() == 0; }));
}

TEST_F(Systemd, MustBeThere) {
    EXPECT_FALSE(start({"--device", "host:64M", "--keeper", "systemd"}));
    EXPECT_NE(log().find("systemd"), std::string::npos) << log();
    EXPECT_FALSE(std::filesystem::exists(dir()));
}

}  // namespace
}  // namespace gshm::core::test

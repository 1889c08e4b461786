// A client's descriptor may block when it is closed: a socket with SO_LINGER, until its peer has read everything. Other
// clients, and the end of gshmd, must not wait for it.
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/descriptors.h"
#include "integration/library_fixture.h"
#include "ring/producer.h"
#include "support/raw_client.h"
#include "support/stopped_thread.h"

namespace gshm::core::test {
namespace {

// A TCP connection with unread bytes. The close of its one end blocks while the other end is open.
class Lingering {
public:
    Lingering() {
        auto listener = UniqueFd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        auto* any = reinterpret_cast<sockaddr*>(&address);
        end_ = UniqueFd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
            ::getsockname(listener.get(), any, &length) != 0 || ::connect(end_.get(), any, length) != 0) {
            return;
        }
        peer_ = UniqueFd::adopt(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const std::string bytes(1 << 16, 'x');
        while (::send(end_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {}
        const linger long_time = {1, 3600};
        works_ = peer_ && ::setsockopt(end_.get(), SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time) == 0;
    }
    bool works() const { return works_; }
    int fd() const { return end_.get(); }
    // Another descriptor of it must be in flight: the close of the last one blocks.
    void close_this() { end_.reset(); }
    void end_peer() { peer_.reset(); }

private:
    UniqueFd end_;
    UniqueFd peer_;
    bool works_ = false;
};

class ClientDescriptors : public LibraryTest {
protected:
    // All clients have the same thread.
    void begin() {
        ASSERT_TRUE(start({"--device", "host:256M", "--threads", "1"})) << log();
        ASSERT_TRUE(socket_.works());
        bystander_.emplace(socket_path());
    }
    // Sends a packet of zeros, with the socket.
    void send_zeros(const RawClient& client, size_t bytes) {
        std::vector<char> data(bytes);
        iovec part = {data.data(), bytes};
        Descriptors<1> space;
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        const int fd = socket_.fd();
        space.attach(message, {&fd, 1});
        EXPECT_EQ(::sendmsg(client.socket(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes)) << strerror(errno);
    }
    // Sends something with the socket. The descriptor that gshmd gets is then the last one.
    void attack(const std::function<void()>& send) {
        ASSERT_EQ(::kill(pid(), SIGSTOP), 0);
        int status = 0;
        ASSERT_EQ(waitpid(pid(), &status, WUNTRACED), pid());
        send();
        socket_.close_this();
        ASSERT_EQ(::kill(pid(), SIGCONT), 0);
    }
    void expect_clients_are_served() {
        for (int i = 0; i < 10; ++i) {
            EXPECT_EQ(bystander_->ping().error, 0);
            const auto devices = bystander_->ask(  // with the store lock
                wire::RequestBody::Devices,
                [](RawClient::Builder& builder) { return wire::CreateDevices(builder).Union(); });
            EXPECT_EQ(devices.error, 0);
        }
    }
    void expect_others_are_served() {
        expect_clients_are_served();
        EXPECT_EQ(RawClient(socket_path()).ping().error, 0) << "a new client";
    }
    // The lower numbers are all in use.
    int spare_descriptor() const {
        const auto folder = "/proc/" + std::to_string(pid()) + "/fd/";
        int fd = 3;
        while (std::filesystem::read_symlink(folder + std::to_string(fd)) != "/dev/null") ++fd;
        return fd;
    }
    bool has_blocked_close() const {
        const auto tasks = "/proc/" + std::to_string(pid()) + "/task";
        for (const auto& task : std::filesystem::directory_iterator(tasks)) {
            if (SleepingCall::of(pid(), atoi(task.path().filename().c_str())).number == SYS_close) return true;
        }
        return false;
    }

    Lingering socket_;
    std::optional<RawClient> bystander_;
};

TEST_F(ClientDescriptors, OfARequestThatTakesNone) {
    begin();
    RawClient client(socket_path());
    attack([&] { client.send_ping({socket_.fd()}); });
    EXPECT_EQ(client.receive().error, 0);
    expect_others_are_served();
}

TEST_F(ClientDescriptors, OfAPacketWithoutBytes) {
    begin();
    RawClient client(socket_path());
    attack([&] { send_zeros(client, 0); });
    EXPECT_EQ(client.ping().error, 0);
    expect_others_are_served();
}

TEST_F(ClientDescriptors, OfAPacketThatIsTooLong) {
    begin();
    RawClient client(socket_path());
    const int room = 4 * static_cast<int>(limits::kMessageBytes);
    ASSERT_EQ(::setsockopt(client.socket(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    attack([&] { send_zeros(client, limits::kMessageBytes + 1); });
    EXPECT_TRUE(client.receive().is_end);
    expect_others_are_served();
}

TEST_F(ClientDescriptors, OfAPacketThatIsNoRequest) {
    begin();
    RawClient client(socket_path());
    attack([&] { send_zeros(client, 100); });
    EXPECT_EQ(client.receive().error, EPROTO);
    EXPECT_TRUE(client.receive().is_end);
    expect_others_are_served();
}

TEST_F(ClientDescriptors, OfARingAndOfItsFile) {
    begin();
    RawClient client(socket_path());
    auto ring = ring::Producer::create(8).value();
    ASSERT_EQ(client.create_ring(0, ring.memory(), ring.doorbell()).error, 0);
    attack([&] { client.send_file(0, socket_.fd()); });
    EXPECT_EQ(client.receive().error, EINVAL);
    expect_others_are_served();
    // Also other rings and files of the user.
    const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(client.add_file(0, file).error, 0);
    ::close(file);
    Lingering second;
    std::swap(socket_, second);
    attack([&] { client.send_ring(1, socket_.fd(), socket_.fd()); });
    EXPECT_EQ(client.receive().error, EINVAL);
    EXPECT_EQ(client.create_ring(1, ring.memory(), ring.doorbell()).error, 0);
    expect_others_are_served();
}

// The close of a connection closes the descriptors of its unread packets: this one blocks for an hour.
TEST_F(ClientDescriptors, OfPacketsThatAreNotReadAnyMore) {
    begin();
    std::optional<RawClient> client(socket_path());
    attack([&] {
        const char no_request[100] = {};
        EXPECT_EQ(::send(client->socket(), no_request, sizeof no_request, MSG_NOSIGNAL), 100);
        client->send_ping({socket_.fd()});
    });
    ASSERT_TRUE(eventually([&] { return has_blocked_close(); }));
    expect_others_are_served();
    EXPECT_EQ(stop(), 0) << "gshmd ends";
}

TEST_F(ClientDescriptors, OfAClientThatIsRefused) {
    begin();
    rlimit usual = {};
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, nullptr, &usual), 0);
    rlimit few = usual;
    // Room for the descriptor that gshmd gives up to refuse a client, and for no other.
    few.rlim_cur = static_cast<rlim_t>(spare_descriptor()) + 1;
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &few, nullptr), 0);
    std::optional<RawClient> client;
    attack([&] {
        client.emplace(socket_path(), RawClient::Greeting::none);
        client->send_ping({socket_.fd()});
    });
    EXPECT_EQ(client->receive().error, EMFILE);
    client.reset();
    ASSERT_TRUE(eventually([&] { return has_blocked_close(); }));
    expect_clients_are_served();
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &usual, nullptr), 0);
    socket_.end_peer();
    expect_others_are_served();
}

}  // namespace
}  // namespace gshm::core::test

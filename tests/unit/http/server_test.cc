// The HTTP server: slow clients, many clients, wrong requests.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <gtest/gtest.h>

#include "http/server.h"

namespace gshm::core::http {
namespace {

class HttpServerTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = "/tmp/gshm-http-XXXXXX";
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override {
        server_.reset();
        unlink(path().c_str());
        rmdir(folder_.c_str());
    }
    std::string path() const { return folder_ + "/socket"; }
    void start(Server::Limits limits = {}, size_t body_bytes = 5) {
        auto listener = listen_at_path(path(), 0600);
        ASSERT_TRUE(listener) << listener.error().message;
        std::vector<UniqueFd> listeners;
        listeners.push_back(std::move(*listener));
        auto server = Server::create(
            std::move(listeners), "/page",
            [body_bytes](const Request&) { return Response{200, "text/plain", std::string(body_bytes, 'x')}; }, limits);
        ASSERT_TRUE(server) << server.error().message;
        server_ = std::move(*server);
    }
    UniqueFd connect() const {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        path().copy(address.sun_path, sizeof address.sun_path - 1);
        auto socket = UniqueFd::adopt(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        return socket;
    }
    static bool say(const UniqueFd& socket, std::string_view text) {
        return send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
    }
    // Until the server closes it.
    static std::string read_all(const UniqueFd& socket) {
        std::string text;
        char buffer[4096];
        for (ssize_t got = 0; (got = recv(socket.get(), buffer, sizeof buffer, 0)) > 0;) {
            text.append(buffer, static_cast<size_t>(got));
        }
        return text;
    }
    std::string ask(std::string_view text) const {
        auto socket = connect();
        EXPECT_TRUE(say(socket, text));
        return read_all(socket);
    }

    std::string folder_;
    std::unique_ptr<Server> server_;
};

TEST_F(HttpServerTest, AnswersGetAndHead) {
    start();
    const std::string answer = ask("GET /page HTTP/1.1\r\n\r\n");
    EXPECT_EQ(answer,
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nxxxxx");
    EXPECT_EQ(ask("HEAD /page HTTP/1.1\r\n\r\n"), answer.substr(0, answer.size() - 5));
}

TEST_F(HttpServerTest, RefusesOthers) {
    start();
    EXPECT_TRUE(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    EXPECT_TRUE(ask("POST /page HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").starts_with("HTTP/1.1 405 "));
    EXPECT_NE(ask("POST /page HTTP/1.1\r\n\r\n").find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
    EXPECT_TRUE(ask("GET /page HTTP/2.0\r\n\r\n").starts_with("HTTP/1.1 505 "));
    EXPECT_TRUE(ask("\x16\x03\x01 nothing\r\n\r\n").starts_with("HTTP/1.1 400 "));
    EXPECT_TRUE(ask("\n\n\n").starts_with("HTTP/1.1 400 "));
    const std::string large = "GET /page HTTP/1.1\r\nA: " + std::string(9000, 'a');
    EXPECT_TRUE(ask(large).starts_with("HTTP/1.1 431 "));
    EXPECT_TRUE(ask(large + "\r\n\r\n").starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, SlowClientsDelayNoOthers) {
    start();
    auto slow = connect();
    ASSERT_TRUE(say(slow, "GET /pa"));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask("GET /page HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    ASSERT_TRUE(say(slow, "ge HTTP/1.1\r\n\r\n"));
    EXPECT_TRUE(read_all(slow).starts_with("HTTP/1.1 200 "));
}

// The answer is larger than what the socket takes. The client reads it later.
TEST_F(HttpServerTest, ClientsThatDoNotReadDelayNoOthers) {
    constexpr size_t kBytes = 8 << 20;
    start({}, kBytes);
    auto slow = connect();
    ASSERT_TRUE(say(slow, "GET /page HTTP/1.1\r\n\r\n"));
    EXPECT_TRUE(ask("HEAD /page HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    EXPECT_GT(read_all(slow).size(), kBytes);
}

TEST_F(HttpServerTest, IdleClientsMakePlace) {
    start({.connections = 100, .connections_of_user = 4});
    std::vector<UniqueFd> idle;
    for (int i = 0; i < 12; ++i) idle.push_back(connect());
    EXPECT_TRUE(ask("GET /page HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    // Those that came first have gone, and the last ones are still served.
    EXPECT_EQ(read_all(idle.front()), "");
    ASSERT_TRUE(say(idle.back(), "GET /page HTTP/1.1\r\n\r\n"));
    EXPECT_TRUE(read_all(idle.back()).starts_with("HTTP/1.1 200 "));
}

// They read their answers, and do not close.
TEST_F(HttpServerTest, AnsweredClientsThatStayMakePlace) {
    start({.connections = 4, .connections_of_user = 4, .close_time = std::chrono::hours(1)});
    std::vector<UniqueFd> answered;
    for (int i = 0; i < 12; ++i) {
        answered.push_back(connect());
        ASSERT_TRUE(say(answered.back(), "GET /page HTTP/1.1\r\n\r\n"));
        EXPECT_TRUE(read_all(answered.back()).starts_with("HTTP/1.1 200 ")) << i;
    }
}

TEST_F(HttpServerTest, AnsweredClientsHaveATimeLimit) {
    start({.close_time = std::chrono::milliseconds(1)});
    auto answered = connect();
    ASSERT_TRUE(say(answered, "GET /page HTTP/1.1\r\n\r\n"));
    EXPECT_TRUE(read_all(answered).starts_with("HTTP/1.1 200 "));
    pollfd gone{answered.get(), 0, 0};  // POLLHUP
    EXPECT_EQ(poll(&gone, 1, -1), 1);
}

TEST_F(HttpServerTest, RequestsHaveATimeLimit) {
    start({.request_time = std::chrono::milliseconds(1)});
    auto slow = connect();
    EXPECT_TRUE(read_all(slow).starts_with("HTTP/1.1 408 "));
}

// It would be sent to nobody for ever.
TEST_F(HttpServerTest, AnswersHaveATimeLimit) {
    start({.answer_time = std::chrono::milliseconds(1)}, 8 << 20);
    auto slow = connect();
    ASSERT_TRUE(say(slow, "GET /page HTTP/1.1\r\n\r\n"));
    pollfd gone{slow.get(), POLLRDHUP, 0};
    ASSERT_EQ(poll(&gone, 1, -1), 1);
    EXPECT_LT(read_all(slow).size(), size_t{8} << 20);
}

TEST(HttpAddress, IsCompared) {
    EXPECT_TRUE(are_one_address("127.0.0.1:9402", "localhost:9402"));
    EXPECT_TRUE(are_one_address("[::1]:9402", "[0:0::1]:9402"));
    EXPECT_FALSE(are_one_address("127.0.0.1:9402", "127.0.0.1:9403"));
    EXPECT_FALSE(are_one_address("127.0.0.1:9402", "[::1]:9402"));
    EXPECT_FALSE(are_one_address("127.0.0.1:0", "127.0.0.1:0"));
}

TEST(HttpAddress, IsParsed) {
    for (const char* address : {"127.0.0.1:9402", "0.0.0.0:1", "[::1]:9402", "[::]:65535", "localhost:0"}) {
        EXPECT_TRUE(check_address(address)) << address;
    }
    for (const char* address :
         {"", "9402", ":9402", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1",
          "[::ffff:127.0.0.1]:9402", "::1:9402", "[::1]", "host.example:9402", "127.0.0.1:94 "}) {
        auto checked = check_address(address);
        ASSERT_FALSE(checked) << address;
        EXPECT_EQ(checked.error().code, EINVAL);
    }
    auto listener = listen_at("localhost:0");
    ASSERT_TRUE(listener);
    EXPECT_TRUE(listener->is_loopback);
    EXPECT_TRUE(listener->address.starts_with("127.0.0.1:")) << listener->address;
    EXPECT_FALSE(listener->address.ends_with(":0"));
    // In use.
    auto again = listen_at(listener->address);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, EADDRINUSE);
}

}  // namespace
}  // namespace gshm::core::http

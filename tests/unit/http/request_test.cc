#include <gtest/gtest.h>

#include "http/request.h"

namespace gshm::core::http {
namespace {

TEST(HttpRequest, IsParsed) {
    auto request = parse_request("\r\nGET /metrics?process=no HTTP/1.1\r\nHost: x\r\nACCEPT:  text/plain \r\n"
                                 "accept: */*;q=0.1\r\n\r\n");
    ASSERT_TRUE(request);
    EXPECT_EQ(request->method, "GET");
    EXPECT_EQ(request->path, "/metrics");
    EXPECT_EQ(request->query, "process=no");
    EXPECT_EQ(request->accept, "text/plain,*/*;q=0.1");
    auto by_proxy = parse_request("GET http://host:1/metrics HTTP/1.0\n\n");
    ASSERT_TRUE(by_proxy);
    EXPECT_EQ(by_proxy->path, "/metrics");
}

TEST(HttpRequest, IsRefused) {
    for (const char* head :
         {"", "\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / FTP/1\r\n\r\n", " / HTTP/1.1\r\n\r\n",
          "G(T / HTTP/1.1\r\n\r\n", "GET metrics HTTP/1.1\r\n\r\n", "GET http://host HTTP/1.1\r\n\r\n",
          "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\n: no name\r\n\r\n"}) {
        auto request = parse_request(head);
        ASSERT_FALSE(request) << head;
        EXPECT_EQ(request.error().code, EINVAL) << head;
    }
    for (const char* head : {"PRI * HTTP/2.0\r\n\r\n", "GET / HTTP/1.2\r\n\r\n", "GET / HTTP/1.1 x\r\n\r\n"}) {
        EXPECT_EQ(parse_request(head).error().code, EPROTONOSUPPORT) << head;
    }
}

TEST(HttpRequest, EndsWithAnEmptyLine) {
    constexpr size_t kNotYet = std::string_view::npos;
    const std::pair<std::string_view, size_t> heads[] = {
        {"", kNotYet},
        {"\r\n\r\n", kNotYet},  // before the request
        {"GET / HTTP/1.1\r\n", kNotYet},
        {"GET / HTTP/1.1\r\nA: b\r\n\r", kNotYet},
        {"GET / HTTP/1.1\r\n\r\nbody", 18},
        {"\nGET / HTTP/1.1\n\nbody", 17},
    };
    for (const auto& [bytes, end] : heads) {
        EXPECT_EQ(HeadEnd().find(bytes).value(), end) << bytes;
        // Byte by byte.
        HeadEnd in_parts;
        for (size_t i = 0; i < std::min(bytes.size(), end); ++i) {
            EXPECT_EQ(in_parts.find(bytes.substr(0, i)).value(), kNotYet) << bytes;
        }
        EXPECT_EQ(in_parts.find(bytes).value(), end) << bytes;
    }
}

TEST(HttpRequest, BeginsWithFewEmptyLines) {
    HeadEnd head_end;
    auto found = head_end.find("\r\n\n\n");
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, EINVAL);
}

TEST(HttpRequest, HostsOfLoopback) {
    for (const char* host : {"localhost", "LocalHost:9402", "127.0.0.1", "127.0.0.1:9402", "[::1]", "[::1]:9402"}) {
        EXPECT_TRUE(is_host_of_loopback(host)) << host;
    }
    for (const char* host : {"enemy.example", "enemy.example:9402", "localhost.enemy.example", "127.0.0.1.example:80",
                             "127.0.0.1:x", "[::1", "[::1]x", "::1", "[enemy]:1", ":80"}) {
        EXPECT_FALSE(is_host_of_loopback(host)) << host;
    }
    EXPECT_EQ(parse_request("GET / HTTP/1.1\r\nHOST: a:1 \r\n\r\n")->host, "a:1");
    EXPECT_FALSE(parse_request("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"));
}

TEST(HttpRequest, AcceptChoosesTheFormat) {
    for (const char* accept :
         {"application/openmetrics-text", "application/openmetrics-text; version=1.0.0",
          "text/plain;q=0.5, "
          "Application/OpenMetrics-Text;q=0.6",
          "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
          "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}) {
        EXPECT_TRUE(prefers_openmetrics(accept)) << accept;
    }
    for (const char* accept : {"", "*/*", "text/plain", "application/openmetrics-text;version=0.0.1",
                               "application/openmetrics-text;q=0", "application/openmetrics-text;q=x",
                               "application/openmetrics-text;q=0.3, text/*;q=0.4", ",;=,", "application/json"}) {
        EXPECT_FALSE(prefers_openmetrics(accept)) << accept;
    }
}

}  // namespace
}  // namespace gshm::core::http

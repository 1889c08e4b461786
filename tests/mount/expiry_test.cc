// Objects that expire while the kernel knows their names, and files that are open.
#include <fcntl.h>

#include "mount/survival_fixture.h"
#include <gshm/watch.hpp>

namespace gshm::core::test {
namespace {

using namespace std::chrono_literals;

class MountExpiry : public SurvivalTest {
protected:
    static std::string by_user(const std::function<std::string()>& body) { return run_as(user(), body); }
    Client connect() {
        auto client = Client::connect({.dir = dir(), .timeout = 60s});
        EXPECT_TRUE(client) << client.error().message;
        return *std::move(client);
    }
    static bool expires(Watch& watch, const std::string& name) {
        for (;;) {
            auto event = watch.next(120s);
            if (!event) return false;
            if (event->kind == EventKind::kExpired && event->name == name) return true;
        }
    }
    // The kernel is notified asynchronously.
    std::string vanishes(const std::string& name) {
        return by_user([&]() -> std::string {
            for (int i = 0; i < 6000; ++i, usleep(10'000)) {
                struct stat info = {};
                if (stat(at(name).c_str(), &info) != 0 && errno == ENOENT) return "";
            }
            return name + " is still there";
        });
    }
    std::string is_known(const std::string& name) {
        return by_user([&]() -> std::string {
            struct stat info = {};
            return stat(at(name).c_str(), &info) == 0 ? "" : failed("stat");
        });
    }
};
INSTANTIATE_TEST_SUITE_P(Ways, MountExpiry, ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda),
                         way_of);

TEST_P(MountExpiry, TheKernelForgetsTheName) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    Client client = connect();
    auto watch = Watch::create(client, "");
    ASSERT_TRUE(watch);
    ASSERT_EQ(by_user([&]() -> std::string {
                  if (!write_file(at("f"), "bytes", O_CREAT)) return "write";
                  return link(at("f").c_str(), at("g").c_str()) == 0 ? "" : failed("link");
              }),
              "");
    ASSERT_EQ(is_known("f") + is_known("g"), "");
    ASSERT_TRUE(client.set_ttl("f", 1ms));
    EXPECT_TRUE(expires(*watch, "f"));
    EXPECT_EQ(vanishes("f") + vanishes("g"), "");
    EXPECT_TRUE(frees_all());
}

TEST_P(MountExpiry, AnOpenFileStaysReadableAndIsInUse) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    Client client = connect();
    auto watch = Watch::create(client, "");
    ASSERT_TRUE(watch);
    EXPECT_EQ(by_user([&]() -> std::string {
                  if (!write_file(at("f"), "bytes", O_CREAT)) return "write";
                  const auto fd = UniqueFd::adopt(open(at("f").c_str(), O_RDONLY));
                  if (!fd) return failed("open");
                  // The child has no connection of its own.
                  Client mine = connect();
                  if (!mine.set_ttl("f", 20ms, true)) return "set_ttl";
                  usleep(100'000);
                  struct stat info = {};
                  if (stat(at("f").c_str(), &info) != 0) return failed("it is in use: stat");
                  if (!mine.set_ttl("f", 1ms)) return "set_ttl";
                  for (int i = 0; i < 6000 && stat(at("f").c_str(), &info) == 0; ++i) usleep(10'000);
                  char bytes[5] = {};
                  if (pread(fd.get(), bytes, sizeof bytes, 0) != 5 || memcmp(bytes, "bytes", 5) != 0) return "read";
                  return fstat(fd.get(), &info) == 0 && info.st_nlink == 0 ? "" : "fstat";
              }),
              "");
    EXPECT_TRUE(expires(*watch, "f"));
    EXPECT_EQ(vanishes("f"), "");
    EXPECT_TRUE(frees_all());
}

TEST_P(MountExpiry, WhatEndedWhileGshmdWasAwayIsNotInTheMount) {
    ASSERT_TRUE(start_mounted(GetParam())) << log();
    Client client = connect();
    ASSERT_EQ(by_user([&]() -> std::string {
                  return write_file(at("f"), "x", O_CREAT) && write_file(at("g"), "x", O_CREAT) ? "" : "write";
              }),
              "");
    ASSERT_EQ(is_known("f") + is_known("g"), "");
    ASSERT_TRUE(client.set_ttl("f", 50ms));
    ASSERT_TRUE(client.set_ttl("g", 1h));
    kill();
    usleep(60'000);
    ASSERT_TRUE(again()) << log();
    EXPECT_EQ(vanishes("f"), "");
    EXPECT_EQ(is_known("g"), "");
    EXPECT_TRUE(frees_all());
}

}  // namespace
}  // namespace gshm::core::test

// gshm.hpp against a daemon.
#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

using namespace std::chrono_literals;

class HppTest : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override {
        ASSERT_TRUE(start()) << log();
        client_ = Client::connect({.dir = dir()}).value();
    }
    Client client_;
};

TEST_F(HppTest, LifeOfAnObject) {
    const std::vector<int> numbers = {1, 2, 3, 4};
    auto object = client_.create({.name = "a/b", .size_bytes = 16, .attributes = {{"dtype", "int32"}}}).value();
    EXPECT_EQ(client_.create({.name = "a/b", .size_bytes = 16}).error().code, EEXIST);
    EXPECT_TRUE(object.copy_in(numbers));
    EXPECT_EQ(object.copy_in(numbers, 4).error().code, EINVAL);
    EXPECT_TRUE(object.copy_in(std::span(numbers).first(1), 12));
    EXPECT_FALSE(is_sealed(object.stat().value()));
    EXPECT_TRUE(object.seal());

    auto reader = client_.open("a/b", {.sealed_only = true}).value();
    EXPECT_EQ(reader.id(), object.id());
    EXPECT_EQ(reader.size(), 16u);
    EXPECT_EQ(reader.device(), "host");
    const auto in_place = reader.host_span<const int>().value();
    EXPECT_EQ(std::vector<int>(in_place.begin(), in_place.end()), (std::vector<int>{1, 2, 3, 1}));
    std::array<int, 2> copy = {};
    EXPECT_TRUE(reader.copy_out(copy, 4));
    EXPECT_EQ(copy, (std::array<int, 2>{2, 3}));
    EXPECT_EQ(client_.open_id(object.id(), {.map = false}).value().data(), nullptr);
    EXPECT_EQ(client_.open("a/b", {.map = false}).value().host_span().error().code, EOPNOTSUPP);
    EXPECT_EQ(client_.open("a/b", {.write = true}).error().code, EPERM);

    const auto holders = client_.holders("a/b").value();
    ASSERT_EQ(holders.size(), 1u);
    EXPECT_EQ(holders[0].pid, ::getpid());
    EXPECT_TRUE(client_.unlink("a/b"));
    EXPECT_EQ(client_.stat("a/b").error().code, ENOENT);
    EXPECT_TRUE(reader.copy_out(copy));  // held, so it still exists
}

TEST_F(HppTest, NewVersionsAndWhoHoldsTheOld) {
    for (int version : {1, 2}) {
        auto made = client_.create({.name = "v/w", .size_bytes = 8, .unnamed = true}).value();
        EXPECT_TRUE(made.copy_in(std::vector<int>{version, version}));
        EXPECT_EQ(made.replace(std::string("v\0w", 3)).error().code, EINVAL);
        EXPECT_TRUE(made.replace("v/w"));
    }
    auto old = client_.open("v/w").value();
    EXPECT_EQ(old.host_span<const int>().value()[1], 2);
    auto next = client_.create({.name = "v/w", .size_bytes = 4, .unnamed = true}).value();
    EXPECT_TRUE(next.replace("v/w"));
    const auto unlinked = client_.unlinked().value();
    ASSERT_EQ(unlinked.size(), 1u);
    EXPECT_EQ(unlinked[0].name, "v/w");
    EXPECT_EQ(unlinked[0].info.size_bytes, 8u);
    ASSERT_EQ(unlinked[0].holders.size(), 1u);
    EXPECT_EQ(unlinked[0].holders[0].pid, ::getpid());
    EXPECT_EQ(old.host_span<const int>().value()[1], 2);
}

TEST_F(HppTest, TheCallsSince02) {
    EXPECT_EQ(client_.dir().value(), dir());
    EXPECT_EQ(Client().dir().error().code, EINVAL);
    const auto id = client_.create({.name = "n/a", .size_bytes = 1, .keep = true}).value().id();
    (void)client_.create({.name = "n/b", .size_bytes = 1, .keep = true}).value();
    const auto opened = client_.open_ids(std::vector<uint64_t>{id, id + 1000}, {.map = false});
    ASSERT_EQ(opened.size(), 2u);
    EXPECT_EQ(opened[0].value().id(), id);
    EXPECT_EQ(opened[1].error().code, ENOENT);
    EXPECT_TRUE(client_.open_ids({}).empty());

    const std::vector<Attribute> wanted = {{"b", std::string("2\0", 2)}, {std::string("x\0", 2), ""}, {"a", ""}};
    const auto set = client_.set_attributes("n/a", wanted);
    ASSERT_EQ(set.size(), 3u);
    EXPECT_TRUE(set[0] && !set[1] && set[2]);
    EXPECT_EQ(set[1].error().code, EINVAL);
    EXPECT_EQ(client_.set_attributes(std::string("n\0", 2), wanted)[0].error().code, EINVAL);
    const auto all = client_.attributes("n/a").value();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].name, "a");
    EXPECT_EQ(all[1].value, wanted[0].value);
    EXPECT_EQ(client_.attributes("n/a", std::vector<std::string>{"none", "b"}).value().size(), 1u);
    EXPECT_TRUE(client_.attributes("n/a", std::vector<std::string>{}).value().empty());
    EXPECT_EQ(client_.attributes("none").error().code, ENOENT);

    const auto gone = client_.unlink_batch(std::vector<std::string>{"n/a", "none", "n/b"});
    ASSERT_EQ(gone.size(), 3u);
    EXPECT_TRUE(gone[0] && !gone[1] && gone[2]);
    EXPECT_EQ(gone[1].error().code, ENOENT);
    EXPECT_EQ(set_log(nullptr, nullptr, 99).error().code, EINVAL);
    EXPECT_TRUE(set_log(nullptr));
}

TEST_F(HppTest, BatchesGiveOneResultEach) {
    const std::string with_nul("b\0c", 3);
    const std::vector<CreateSpec> specs = {{.name = "b/0", .size_bytes = 64},
                                           {.name = with_nul, .size_bytes = 64},
                                           {.name = "b/2", .size_bytes = 0},
                                           {.name = "b/3", .size_bytes = 64}};
    auto made = client_.create_batch(specs);
    ASSERT_EQ(made.size(), 4u);
    EXPECT_TRUE(made[0]);
    EXPECT_EQ(made[1].error().code, EINVAL);
    EXPECT_EQ(made[2].error().code, EINVAL);
    EXPECT_NE(made[2].error().message.find("b/2"), std::string::npos) << made[2].error().message;
    ASSERT_TRUE(made[3]);

    std::vector<Object> objects;
    objects.push_back(std::move(made[0]).value());
    objects.push_back(std::move(made[3]).value());
    for (const auto& sealed : seal_batch(objects)) EXPECT_TRUE(sealed);

    const std::vector<std::string> names = {"b/0", with_nul, "b/none", "b/3"};
    const auto opened = client_.open_batch(names);
    ASSERT_EQ(opened.size(), 4u);
    EXPECT_EQ(opened[0]->id(), objects[0].id());
    EXPECT_EQ(opened[1].error().code, EINVAL);
    EXPECT_EQ(opened[2].error().code, ENOENT);
    EXPECT_EQ(opened[3]->id(), objects[1].id());
    const auto infos = client_.stat_batch(names);
    EXPECT_TRUE(is_sealed(*infos[0]));
    EXPECT_EQ(infos[0]->leases, 2u);
    EXPECT_EQ(infos[2].error().code, ENOENT);

    close_batch(std::move(objects));
    EXPECT_EQ(client_.stat("b/0").value().leases, 1u);
    EXPECT_TRUE(client_.create_batch({}).empty());
    EXPECT_TRUE(client_.open_batch({}).empty());
}

TEST_F(HppTest, BatchThatFailsAsAWholeFailsInEveryElement) {
    const std::vector<std::string> names = {"x", "y"};
    for (const auto& result : Client().open_batch(names)) EXPECT_EQ(result.error().code, EINVAL);
    EXPECT_EQ(Client().stat_batch(names).size(), 2u);
}

TEST_F(HppTest, NamesAndAttributes) {
    for (const std::string name : {"d/one", "d/two", "d/sub/three"})
        ASSERT_TRUE(client_.create({.name = name, .size_bytes = 8, .keep = true, .map = false})) << name;
    const auto entries = client_.list("d").value();
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].name, "one");
    EXPECT_EQ(entries[1].name, "sub");
    EXPECT_TRUE(is_directory(entries[1].info));
    EXPECT_EQ(client_.list("d", true).value().size(), 3u);
    EXPECT_EQ(client_.list().value().size(), 1u);
    EXPECT_EQ(client_.rename("d/one", "d/two").error().code, EEXIST);
    EXPECT_TRUE(client_.rename("d/one", "d/two", true));
    EXPECT_TRUE(client_.link("d/two", "d/three"));
    EXPECT_EQ(client_.stat("d/three")->id, client_.stat("d/two")->id);
    EXPECT_TRUE(client_.set_mode("d/three", 0604));
    EXPECT_EQ(client_.stat("d/two")->mode, 0604u);
    EXPECT_TRUE(client_.unlink("d/three"));
    EXPECT_TRUE(client_.make_symlink("two", "d/link"));
    EXPECT_EQ(client_.read_link("d/link").value(), "two");
    EXPECT_TRUE(client_.open("d/link"));
    EXPECT_TRUE(client_.unlink("d/link"));
    EXPECT_TRUE(client_.make_directory("d/kept", 0700));
    EXPECT_EQ(client_.make_directory("d/kept").error().code, EEXIST);
    EXPECT_TRUE(client_.unlink("d/kept"));
    EXPECT_TRUE(client_.seal("d/two"));
    EXPECT_TRUE(is_sealed(client_.wait("d/two", WaitFor::kSealed, 1000ms).value()));
    EXPECT_EQ(client_.wait("d/none", WaitFor::kExists, 10ms).error().code, ETIMEDOUT);

    const std::string bytes("a\0b", 3);
    EXPECT_TRUE(client_.set_attribute("d/sub/three", "raw", bytes));
    EXPECT_TRUE(client_.set_attribute("d/sub/three", "empty", ""));
    EXPECT_EQ(client_.attribute("d/sub/three", "raw").value(), bytes);
    EXPECT_EQ(client_.attribute("d/sub/three", "empty").value(), "");
    EXPECT_EQ(client_.attribute("d/sub/three", "none").error().code, ENODATA);
    EXPECT_EQ(client_.attribute_names("d/sub/three").value(), (std::vector<std::string>{"empty", "raw"}));
    EXPECT_TRUE(client_.remove_attribute("d/sub/three", "raw"));
    EXPECT_EQ(client_.attribute_names("d/sub/three").value(), std::vector<std::string>{"empty"});
    EXPECT_EQ(client_.stat(std::string("d\0x", 3)).error().code, EINVAL);
}

TEST_F(HppTest, DaemonAndDevices) {
    EXPECT_TRUE(client_.ping());
    const auto info = client_.daemon().value();
    EXPECT_EQ(info.pid, pid());
    EXPECT_EQ(info.version, version());
    const auto devices = client_.devices().value();
    ASSERT_EQ(devices.size(), 1u);
    EXPECT_STREQ(devices[0].name, "host");
    EXPECT_FALSE(local_devices().value().empty());
    EXPECT_TRUE(client_.shutdown());
    EXPECT_EQ(wait_for_end(), 0) << log();
}

TEST_F(HppTest, EmptyHandlesFailCleanly) {
    Client moved = std::move(client_);
    EXPECT_EQ(client_.ping().error().code, EINVAL);  // NOLINT: a moved-from one is empty by contract
    EXPECT_TRUE(moved.ping());
    Object none;
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(none.size(), 0u);
    EXPECT_EQ(none.device(), "");
    EXPECT_EQ(none.seal().error().code, EINVAL);
    EXPECT_EQ(none.host_span().error().code, EINVAL);
    const auto absent = Client::connect({.dir = scratch() + "/none", .timeout = 0ms});
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().code, ECONNREFUSED);
    EXPECT_NE(absent.error().message, "");
}

TEST_F(HppTest, MemoryWithoutADaemon) {
    auto object = Object::allocate("host", 4096).value();
    EXPECT_TRUE(object.fill(7));
    EXPECT_TRUE(object.fill(8, 0, 1));
    const auto exported = object.export_fd().value();
    auto imported = Object::import_fd("host", exported.fd.get(), exported.info, true).value();
    object.close();
    EXPECT_EQ(imported.host_span<const uint8_t>().value()[0], 8);
    EXPECT_EQ(imported.host_span<const uint8_t>().value()[4095], 7);
    imported.host_span<uint8_t>().value()[1] = 9;
    EXPECT_EQ(imported.export_fabric().error().code, EOPNOTSUPP);
    EXPECT_EQ(Object::allocate("tpu:0", 1).error().code, ENODEV);
    EXPECT_EQ(Object::allocate("host", 0).error().code, EINVAL);
}

}  // namespace
}  // namespace gshm::core::test

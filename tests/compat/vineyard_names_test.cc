// Names of vineyard's buffers.
#include "vineyard_fixture.h"

namespace gshm::core::test {
namespace {

class VineyardNames : public VineyardTest {
protected:
    void SetUp() override {
        VineyardTest::SetUp();
        ASSERT_OK(client_.Connect(dir()));
    }
    ObjectID id_of(const std::string& name) {
        ObjectID id = 0;
        EXPECT_OK(client_.GetName(name, id)) << name;
        return id;
    }
    vy::Status status_of(const std::string& name) {
        ObjectID id = 4711;
        const auto status = client_.GetName(name, id);
        EXPECT_TRUE(status.ok() || id == 4711);
        return status;
    }
    vy::Client client_;
};
GSHM_VINEYARD_DEVICES(VineyardNames);

TEST_P(VineyardNames, ArePutGotReplacedAndDropped) {
    const auto first = make(client_, 100, 1);
    const auto second = make(client_, 100, 2);
    EXPECT_TRUE(status_of("weights").IsObjectNotExists());
    EXPECT_TRUE(client_.DropName("weights").IsObjectNotExists());
    ASSERT_OK(client_.PutName(first.id, "weights"));
    EXPECT_EQ(id_of("weights"), first.id);
    ASSERT_OK(client_.PutName(first.id, "weights")) << "again";
    ASSERT_OK(client_.PutName(first.id, "other"));
    ASSERT_OK(client_.PutName(second.id, "weights"));
    EXPECT_EQ(id_of("weights"), second.id);
    EXPECT_EQ(id_of("other"), first.id);
    ASSERT_OK(client_.DropName("weights"));
    EXPECT_TRUE(status_of("weights").IsObjectNotExists());
    bool exists = false;
    EXPECT_OK(client_.Exists(second.id, exists));
    EXPECT_TRUE(exists) << "a name that goes takes nothing with it";
    EXPECT_EQ(run_cli({"stat", "vineyard/names/other", "--json"}).exit_code, 0) << "gshm knows it as well";
}

TEST_P(VineyardNames, KeepNoMemory) {
    const uint64_t before = device().used_bytes;
    auto made = make(client_, 5 << 20);
    ASSERT_OK(client_.PutName(made.id, "name"));
    ASSERT_OK(client_.DelData(made.id));
    made.buffer.reset();
    EXPECT_TRUE(eventually([&] { return device().used_bytes == before; }));
    const auto status = status_of("name");
    EXPECT_TRUE(status.IsObjectNotExists());
    EXPECT_NE(status.message().find(vy::ObjectIDToString(made.id)), std::string::npos) << status.ToString();
    ObjectID id = 0;
    EXPECT_TRUE(client_.GetName("name", id, true).IsObjectNotExists()) << "there is nothing to wait for";
    const auto next = make(client_, 100);
    ASSERT_OK(client_.PutName(next.id, "name"));
    EXPECT_EQ(id_of("name"), next.id);
    EXPECT_OK(client_.DropName("name"));
}

TEST_P(VineyardNames, AreAnyText) {
    std::vector<std::string> names = {"a/b/c",
                                      "/",
                                      "..",
                                      ".",
                                      ".hidden",
                                      "%2F",
                                      "a%",
                                      "with blanks ",
                                      "Gewicht \xC3\xBC",
                                      std::string("nul\0inside", 10),
                                      "new\nline",
                                      "names",
                                      std::string(200, 'x')};
    std::map<std::string, ObjectID> ids;
    std::vector<Made> held;
    for (const auto& name : names) {
        held.push_back(make(client_, 10));
        ids[name] = held.back().id;
        ASSERT_OK(client_.PutName(held.back().id, name)) << name;
    }
    for (const auto& name : names) EXPECT_EQ(id_of(name), ids[name]) << name;
    for (const auto& name : names) EXPECT_OK(client_.DropName(name)) << name;
    for (const std::string& name : {std::string(), std::string(256, 'x'), std::string(100, '/'), std::string("\xFF")}) {
        EXPECT_TRUE(client_.PutName(held[0].id, name).IsInvalid()) << name;
        EXPECT_FALSE(status_of(name).ok());
        EXPECT_FALSE(client_.DropName(name).ok());
    }
    EXPECT_TRUE(client_.DropName("").IsInvalid());
    EXPECT_TRUE(status_of("").IsInvalid());
}

TEST_P(VineyardNames, AreWaitedFor) {
    const auto made = make(client_, 100);
    vy::Client other;
    ASSERT_OK(other.Connect(dir()));
    ObjectID id = 0;
    std::atomic<bool> there = false;
    std::thread waiter([&] {
        EXPECT_OK(other.GetName("later", id, true));
        there = true;
    });
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(there);
    ASSERT_OK(client_.PutName(made.id, "later"));
    waiter.join();
    EXPECT_EQ(id, made.id);
    EXPECT_OK(other.GetName("later", id, true)) << "at once";
}

TEST_P(VineyardNames, ThatLeadElsewhereAreNoNames) {
    auto gshm = ::gshm::v0::Client::connect({.dir = dir()}).value();
    const auto made = make(client_, 100);
    ASSERT_OK(client_.PutName(made.id, "name"));
    for (const char* target : {"../../somewhere", "../names", "../o12", "o8000000000000000"}) {
        gshm.make_symlink(target, "vineyard/names/odd").value();
        EXPECT_TRUE(status_of("odd").IsInvalid()) << target;
        ASSERT_OK(client_.DropName("odd"));
    }
    EXPECT_EQ(gshm.list("vineyard/names").value().size(), 1u) << "nothing is left behind";
}

}  // namespace
}  // namespace gshm::core::test

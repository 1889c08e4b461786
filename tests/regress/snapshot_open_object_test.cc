// A snapshot of an open object, whose chunks a later one took for those of the sealed object: memory that is mapped
// changes without a time of modification, and sealing is no modification.
#include <gshm/gshm.hpp>

#include "integration/snapshot_fixture.h"

namespace gshm::core::test {
namespace {

using SnapshotOpenObject = SnapshotTest;

TEST_F(SnapshotOpenObject, AnUpdateHasTheBytesThatWereSealed) {
    auto client = gshm::Client::connect({.dir = dir()});
    ASSERT_TRUE(client) << client.error().message;
    auto object = client->create({.name = "o", .size_bytes = 64 << 10, .device = "host", .keep = true});
    ASSERT_TRUE(object) << object.error().message;
    auto bytes = object->host_span<char>();
    ASSERT_TRUE(bytes) << bytes.error().message;
    std::ranges::fill(*bytes, 'a');
    EXPECT_EQ(run_cli({"snapshot", saved()}).exit_code, 0);  // it warns of the writer
    std::ranges::fill(*bytes, 'b');
    ASSERT_TRUE(object->seal());
    object->close();
    client->disconnect();
    ok({"snapshot", "--update", saved()});
    restart();
    ok({"restore", saved()});
    EXPECT_TRUE(cat("o") == std::string(64 << 10, 'b')) << "bytes from before the seal";
}

}  // namespace
}  // namespace gshm::core::test

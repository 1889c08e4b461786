// A later snapshot reused the chunks of an open object for the sealed object. Writes to mapped memory do not change the
// modification time, and neither does sealing.
#include "integration/snapshot_fixture.h"
#include <gshm/gshm.hpp>

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
    EXPECT_EQ(run_cli({"snapshot", saved()}).exit_code, 0);  // warns about the writer
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

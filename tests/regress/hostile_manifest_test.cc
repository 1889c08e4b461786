// A manifest of any size was read into memory ("std::bad_alloc"), an object of nearly 2^64 bytes needed no chunks, and a
// FIFO in a snapshot's folder was waited for.
#include <cstdlib>
#include <fstream>
#include <span>
#include <sys/stat.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "integration/daemon_fixture.h"
#include "snapshot/chunk.h"

namespace gshm::core::test {
namespace {

using Json = nlohmann::ordered_json;

class HostileManifest : public ::testing::Test, protected DaemonFixture {
protected:
    void SetUp() override { ASSERT_EQ(::mkdir(folder_.c_str(), 0755), 0); }

    // A manifest of one object, with a valid checksum.
    void write_manifest(const std::string& size_bytes) {
        const auto body = R"({"files":["data-0001-00"],"chunk_bytes":4194304,"created_ns":1,"instance":"0a"})"
                          "\n"
                          R"({"kind":"object","names":["o"],"size_bytes":)" +
                          size_bytes +
                          R"(,"mode":"0600","uid":0,"gid":0,"device":"host","flags":[],"state":"sealed",)"
                          R"("attributes":[],"instance":"0a","id":7,"created_ns":1,"modified_ns":1,"chunks":)" +
                          (size_bytes == "3" ? R"([[0,0,0,3,"f4d0497cf9394caab34d1a3ab2bece70"]])" : "[]") + "}\n";
        const Json head = {{"format", "gshm-snapshot"},
                           {"version", 1},
                           {"bytes", body.size()},
                           {"xxh3", to_hex(checksum_of(std::as_bytes(std::span(body.data(), body.size()))))}};
        std::ofstream(manifest_, std::ios::binary) << head.dump() << '\n' << body;
    }
    // Of a restore that must fail.
    std::string refusal() {
        const auto result = run_cli({"restore", "--dry-run", folder_});
        EXPECT_GT(result.exit_code, 0) << result.out;  // not ended by a signal or after a timeout either
        EXPECT_LT(result.exit_code, 128) << result.err;
        return result.err;
    }

    const std::string folder_ = scratch() + "/saved";
    const std::string manifest_ = folder_ + "/manifest.jsonl";
};

TEST_F(HostileManifest, OfATebibyte) {
    std::ofstream(manifest_).close();
    if (::truncate(manifest_.c_str(), off_t{1} << 40) != 0) GTEST_SKIP() << "needs sparse files of 1 TiB";
    EXPECT_NE(refusal().find("at most"), std::string::npos) << refusal();
}

TEST_F(HostileManifest, OfZeros) {
    std::ofstream(manifest_).close();
    ASSERT_EQ(::truncate(manifest_.c_str(), off_t{4} << 30), 0);
    EXPECT_NE(refusal().find("ends within a line"), std::string::npos) << refusal();
}

TEST_F(HostileManifest, WithAnObjectLargerThanAny) {
    write_manifest("18446744073709551615");
    EXPECT_NE(refusal().find("out of range"), std::string::npos) << refusal();
}

TEST_F(HostileManifest, ThatIsAFifo) {
    ASSERT_EQ(::mkfifo(manifest_.c_str(), 0644), 0);
    EXPECT_NE(refusal().find("not a regular file"), std::string::npos) << refusal();
}

TEST_F(HostileManifest, WithDataInAFifo) {
    write_manifest("3");
    ASSERT_EQ(::mkfifo((folder_ + "/data-0001-00").c_str(), 0644), 0);
    EXPECT_NE(refusal().find("not a regular file"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace gshm::core::test

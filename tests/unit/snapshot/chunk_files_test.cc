// The data files of a snapshot: appended chunks are read back, damage is found, and a folder has one writer.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "snapshot/chunk_files.h"
#include "snapshot/manifest.h"

namespace gshm::core {
namespace {

class ChunkFilesTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = ::testing::TempDir() + "/gshm-snapshot-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        path_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(path_); }

    SnapshotFolder open(SnapshotFolder::Use use) { return SnapshotFolder::open(path_, use).value(); }
    // A file with the chunks of one object: a compressible one, an incompressible one, and a short one.
    std::vector<ChunkPlace> write_file(const SnapshotFolder& folder) {
        raw_ = {std::vector<std::byte>(kSnapshotChunkBytes, std::byte{7}), std::vector<std::byte>(kSnapshotChunkBytes),
                std::vector<std::byte>(100, std::byte{9})};
        std::minstd_rand random(1);
        for (auto& byte : raw_[1]) byte = static_cast<std::byte>(random() >> 8);
        ChunkWriter writer(folder.path_of(SnapshotFolder::data_file(1, 0)), 0, 1);
        std::vector<ChunkPlace> places;
        for (size_t i = 0; i < raw_.size(); ++i) {
            std::ranges::copy(raw_[i], writer.room(raw_[i].size()).begin());
            const auto bytes = static_cast<uint32_t>(raw_[i].size());
            places.push_back(
                writer.append({Codec::raw, bytes, bytes, kObject, i * kSnapshotChunkBytes, checksum_of(raw_[i])})
                    .value());
        }
        EXPECT_TRUE(writer.finish().has_value());
        return places;
    }
    // EIO, or 0 if the chunk is intact.
    static int read_error(const ChunkFiles& files, const ChunkPlace& place, uint32_t raw_bytes, uint64_t offset) {
        ChunkReader reader(files);
        const auto bytes = reader.read(place, raw_bytes, "o", offset);
        return bytes ? 0 : bytes.error().code;
    }

    static constexpr Identity kObject = {11, 22, 2 * kSnapshotChunkBytes + 100, 33};
    std::string path_;
    std::vector<std::vector<std::byte>> raw_;
};

TEST_F(ChunkFilesTest, ReadsWhatWasAppended) {
    const auto folder = open(SnapshotFolder::Use::write);
    const auto places = write_file(folder);
    EXPECT_EQ(places[0].codec, Codec::zstd);
    EXPECT_LT(places[0].stored_bytes, kSnapshotChunkBytes / 100);
    EXPECT_EQ(places[1].codec, Codec::raw);
    const auto files = ChunkFiles::open(folder, folder.data_files().value()).value();
    ChunkReader reader(files);
    for (size_t i = 0; i < raw_.size(); ++i) {
        const auto bytes = reader.read(places[i], static_cast<uint32_t>(raw_[i].size()), "o", i * kSnapshotChunkBytes);
        ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
        EXPECT_TRUE(std::ranges::equal(*bytes, raw_[i])) << i;
    }
    EXPECT_EQ(read_error(files, places[2], 100, 0), EIO) << "another chunk's place";
}

TEST_F(ChunkFilesTest, TheIndexFindsEveryChunk) {
    const auto folder = open(SnapshotFolder::Use::write);
    const auto places = write_file(folder);
    const auto files = ChunkFiles::open(folder, folder.data_files().value()).value();
    const auto index = ChunkIndex::scan(files).value();
    for (size_t i = 0; i < places.size(); ++i) {
        const auto* found = index.find(kObject.instance, kObject.id, i * kSnapshotChunkBytes);
        ASSERT_NE(found, nullptr) << i;
        EXPECT_EQ(found->place.offset, places[i].offset);
        EXPECT_EQ(found->place.checksum, places[i].checksum);
        EXPECT_EQ(found->object, kObject);
    }
    EXPECT_EQ(index.find(kObject.instance, kObject.id + 1, 0), nullptr);
    EXPECT_EQ(folder.next_run().value(), 2u);
}

TEST_F(ChunkFilesTest, DamageIsFound) {
    const auto folder = open(SnapshotFolder::Use::write);
    const auto places = write_file(folder);
    const auto files = ChunkFiles::open(folder, folder.data_files().value()).value();
    const auto file = folder.path_of(SnapshotFolder::data_file(1, 0));
    for (const auto at : {places[1].offset + 40, places[1].offset + ChunkHeader::kBytes + 12345}) {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(at));
        const char old = static_cast<char>(stream.get());
        stream.seekp(static_cast<std::streamoff>(at));
        stream.put(static_cast<char>(~old));
        stream.flush();
        EXPECT_EQ(read_error(files, places[1], kSnapshotChunkBytes, kSnapshotChunkBytes), EIO) << at;
        stream.seekp(static_cast<std::streamoff>(at));
        stream.put(old);
        stream.flush();
        EXPECT_EQ(read_error(files, places[1], kSnapshotChunkBytes, kSnapshotChunkBytes), 0) << at;
    }
    std::filesystem::resize_file(file, places[1].offset + 1000);
    EXPECT_EQ(read_error(files, places[0], kSnapshotChunkBytes, 0), 0);
    EXPECT_EQ(read_error(files, places[1], kSnapshotChunkBytes, kSnapshotChunkBytes), EIO);
}

TEST_F(ChunkFilesTest, AFileThatIsMissingIsDamageOfItsChunks) {
    const auto folder = open(SnapshotFolder::Use::write);
    const auto places = write_file(folder);
    ASSERT_TRUE(folder.remove(SnapshotFolder::data_file(1, 0)).has_value());
    const auto files = ChunkFiles::open(folder, {SnapshotFolder::data_file(1, 0)}).value();
    EXPECT_EQ(read_error(files, places[0], kSnapshotChunkBytes, 0), EIO);
}

TEST_F(ChunkFilesTest, AFolderHasOneWriter) {
    const auto folder = open(SnapshotFolder::Use::write);
    EXPECT_EQ(SnapshotFolder::open(path_, SnapshotFolder::Use::write).error().code, EBUSY);
    EXPECT_EQ(SnapshotFolder::open(path_, SnapshotFolder::Use::read).error().code, EBUSY);
}

TEST_F(ChunkFilesTest, AFolderOfOtherFilesIsNotWritten) {
    std::ofstream(path_ + "/letter.txt") << "dear";
    EXPECT_EQ(SnapshotFolder::open(path_, SnapshotFolder::Use::write).error().code, ENOTEMPTY);
}

TEST_F(ChunkFilesTest, ANameThatIsNotUtf8IsNotWrittenDown) {
    Manifest manifest;
    manifest.symlinks.push_back({{"caf\xe9"}, "x", 0, 0});
    EXPECT_EQ(write_manifest(path_, manifest).error().code, EILSEQ);
    EXPECT_FALSE(read_manifest(path_).value().has_value());
}

}  // namespace
}  // namespace gshm::core

// Reading and writing chunks.
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "failure.h"
#include "snapshot_folder.h"
#include "text.h"

namespace gshm::cli {
namespace {

// A file is written in pieces of about this.
constexpr size_t kFlushBytes = kSnapshotChunkBytes;
// A chunk with its header, wherever in a block it begins.
constexpr size_t kRecordBytes = kSnapshotChunkBytes + 2 * kBlockBytes;
static_assert(ChunkHeader::kBytes < kBlockBytes && kSnapshotChunkBytes % kBlockBytes == 0);

}  // namespace

ChunkReader::ChunkReader(const ChunkFiles& files) : files_(files), stored_(kRecordBytes), raw_(kSnapshotChunkBytes) {}

std::string ChunkReader::check_header(std::span<const std::byte> bytes, const ChunkPlace& place, uint32_t raw_bytes,
                                      uint64_t offset) const {
    ChunkHeader header;
    if (bytes.size() < ChunkHeader::kBytes + place.stored_bytes) return "the file ends before it does";
    if (!ChunkHeader::decode(bytes, header)) return "its header is damaged";
    if (header.codec != place.codec || header.stored_bytes != place.stored_bytes || header.raw_bytes != raw_bytes ||
        header.checksum != place.checksum || header.offset != offset)
        return "its header is another chunk's";
    return {};
}

std::span<const std::byte> ChunkReader::read(const ChunkPlace& place, uint32_t raw_bytes, const std::string& object,
                                             uint64_t offset) {
    auto damaged = [&](std::string_view why) {
        return Failure(EIO,
                       fmt::format("{}: the chunk at byte {}, which is byte {} of \"{}\", is damaged: {}",
                                   printable(files_.path(place.file)), place.offset, offset, printable(object), why));
    };
    const BlockFile* file = files_.file(place.file);
    if (file == nullptr) throw damaged("there is no such file");
    size_t got = 0;
    const std::byte* record = nullptr;
    try {
        record = file->read(place.offset, ChunkHeader::kBytes + place.stored_bytes, stored_, &got);
    } catch (const Failure& failure) {
        throw damaged(failure.what());
    }
    if (const auto why = check_header({record, got}, place, raw_bytes, offset); !why.empty()) throw damaged(why);
    std::span<const std::byte> bytes(record + ChunkHeader::kBytes, place.stored_bytes);
    if (place.codec == Codec::zstd) {
        const std::span<std::byte> raw(raw_.data(), raw_bytes);
        if (!decompressor_.decompress(bytes, raw)) throw damaged("it cannot be decompressed");
        bytes = raw;
    }
    if (bytes.size() != raw_bytes || checksum_of(bytes) != place.checksum) throw damaged("its checksum is wrong");
    return bytes;
}

ChunkWriter::ChunkWriter(std::string path, uint32_t file_index, int level)
    : path_(std::move(path)),
      file_index_(file_index),
      compressor_(level),
      buffer_(kFlushBytes + kRecordBytes) {}

std::span<std::byte> ChunkWriter::room(size_t raw_bytes) {
    return {buffer_.data() + filled_ + ChunkHeader::kBytes, raw_bytes};
}

ChunkPlace ChunkWriter::append(ChunkHeader header) {
    const auto raw = room(header.raw_bytes);
    const auto frame = compressor_.compress(raw);
    if (!frame.empty()) std::memcpy(raw.data(), frame.data(), frame.size());
    header.codec = frame.empty() ? Codec::raw : Codec::zstd;
    header.stored_bytes = static_cast<uint32_t>(frame.empty() ? raw.size() : frame.size());
    header.encode(std::span<std::byte, ChunkHeader::kBytes>(buffer_.data() + filled_, ChunkHeader::kBytes));
    const ChunkPlace place{file_index_, written_ + filled_, header.codec, header.stored_bytes, header.checksum};
    filled_ += ChunkHeader::kBytes + header.stored_bytes;
    if (filled_ >= kFlushBytes) flush(false);
    return place;
}

// Whole blocks; with all the last one too, filled up with zeros.
void ChunkWriter::flush(bool all) {
    size_t whole = filled_ / kBlockBytes * kBlockBytes;
    if (all && whole < filled_) {
        std::memset(buffer_.data() + filled_, 0, whole + kBlockBytes - filled_);
        whole += kBlockBytes;
        filled_ = whole;
    }
    if (whole == 0) return;
    if (!file_) file_.emplace(BlockFile::create(path_));
    file_->write(written_, {buffer_.data(), whole});
    written_ += whole;
    filled_ -= whole;
    std::memmove(buffer_.data(), buffer_.data() + whole, filled_);
}

void ChunkWriter::finish() {
    flush(true);
    if (file_) file_->finish(written_);
}

}  // namespace gshm::cli

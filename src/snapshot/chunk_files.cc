#include "snapshot/chunk_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gshm::core {
namespace {

// The approximate size of a write.
constexpr size_t kFlushBytes = kSnapshotChunkBytes;
// A chunk with its header, at any offset in a block.
constexpr size_t kRecordBytes = kSnapshotChunkBytes + 2 * kBlockBytes;
static_assert(ChunkHeader::kBytes < kBlockBytes && kSnapshotChunkBytes % kBlockBytes == 0);

}  // namespace

Result<ChunkFiles> ChunkFiles::open(const SnapshotFolder& folder, std::vector<std::string> names) {
    ChunkFiles opened(folder.path(), std::move(names));
    for (const auto& name : opened.names_) {
        auto file = BlockFile::open(folder.path_of(name));
        if (!file && file.error().code != ENOENT) return std::unexpected(file.error());
        opened.files_.push_back(file ? std::optional(*std::move(file)) : std::nullopt);
    }
    return opened;
}

ChunkReader::ChunkReader(const ChunkFiles& files) : files_(files), stored_(kRecordBytes), raw_(kSnapshotChunkBytes) {}

std::string ChunkReader::check_header(std::span<const std::byte> bytes, const ChunkPlace& place, uint32_t raw_bytes,
                                      uint64_t offset) const {
    ChunkHeader header;
    if (bytes.size() < ChunkHeader::kBytes + place.stored_bytes) return "the file ends before it does";
    if (!ChunkHeader::decode(bytes, header)) return "its header is damaged";
    if (header.codec != place.codec || header.stored_bytes != place.stored_bytes || header.raw_bytes != raw_bytes ||
        header.checksum != place.checksum || header.offset != offset)
        return "its header belongs to another chunk";
    return {};
}

Result<std::span<const std::byte>> ChunkReader::read(const ChunkPlace& place, uint32_t raw_bytes,
                                                     const std::string& object, uint64_t offset) {
    auto damaged = [&](std::string_view why) {
        return fail(EIO, "{}: the chunk at byte {}, which is byte {} of \"{}\", is damaged: {}",
                    files_.path(place.file), place.offset, offset, object, why);
    };
    const BlockFile* file = files_.file(place.file);
    if (file == nullptr) return damaged("there is no such file");
    const auto record = file->read(place.offset, ChunkHeader::kBytes + place.stored_bytes, stored_);
    if (!record) return damaged(record.error().message);
    if (const auto why = check_header(*record, place, raw_bytes, offset); !why.empty()) return damaged(why);
    std::span<const std::byte> bytes = record->subspan(ChunkHeader::kBytes, place.stored_bytes);
    if (place.codec == Codec::zstd) {
        const std::span<std::byte> raw(raw_.data(), raw_bytes);
        if (!decompressor_.decompress(bytes, raw)) return damaged("it cannot be decompressed");
        bytes = raw;
    }
    if (bytes.size() != raw_bytes || checksum_of(bytes) != place.checksum) return damaged("its checksum is wrong");
    return bytes;
}

ChunkWriter::ChunkWriter(std::string path, uint32_t file_index, int level)
    : path_(std::move(path)), file_index_(file_index), compressor_(level), buffer_(kFlushBytes + kRecordBytes) {}

std::span<std::byte> ChunkWriter::room(size_t raw_bytes) {
    return {buffer_.data() + filled_ + ChunkHeader::kBytes, raw_bytes};
}

Result<ChunkPlace> ChunkWriter::append(ChunkHeader header) {
    const auto raw = room(header.raw_bytes);
    const auto frame = compressor_.compress(raw);
    if (!frame.empty()) std::memcpy(raw.data(), frame.data(), frame.size());
    header.codec = frame.empty() ? Codec::raw : Codec::zstd;
    header.stored_bytes = static_cast<uint32_t>(frame.empty() ? raw.size() : frame.size());
    header.encode(std::span<std::byte, ChunkHeader::kBytes>(buffer_.data() + filled_, ChunkHeader::kBytes));
    const ChunkPlace place{file_index_, written_ + filled_, header.codec, header.stored_bytes, header.checksum};
    filled_ += ChunkHeader::kBytes + header.stored_bytes;
    if (filled_ >= kFlushBytes) TRY(flush(false));
    return place;
}

// Writes whole blocks. With `all`, also the last one, padded with zeros.
Status ChunkWriter::flush(bool all) {
    size_t whole = filled_ / kBlockBytes * kBlockBytes;
    if (all && whole < filled_) {
        std::memset(buffer_.data() + filled_, 0, whole + kBlockBytes - filled_);
        whole += kBlockBytes;
        filled_ = whole;
    }
    if (whole == 0) return {};
    if (!file_) file_.emplace(TRY(BlockFile::create(path_)));
    TRY(file_->write(written_, {buffer_.data(), whole}));
    written_ += whole;
    filled_ -= whole;
    std::memmove(buffer_.data(), buffer_.data() + whole, filled_);
    return {};
}

Status ChunkWriter::finish() {
    TRY(flush(true));
    return file_ ? file_->finish(written_) : Status{};
}

Result<ChunkIndex> ChunkIndex::scan(const ChunkFiles& files) {
    ChunkIndex index;
    for (uint32_t i = 0; i < files.names().size(); ++i) TRY(index.scan(files, i));
    return index;
}

const ChunkIndex::Found* ChunkIndex::find(uint64_t instance, uint64_t id, uint64_t offset) const {
    const auto found = found_.find({instance, id, offset});
    return found == found_.end() ? nullptr : &found->second;
}

Status ChunkIndex::scan(const ChunkFiles& files, uint32_t index) {
    const BlockFile* file = files.file(index);
    if (file == nullptr) return {};
    const BlockBuffer buffer(16 * kBlockBytes);  // headers of small chunks are close together, of large ones far apart
    std::span<const std::byte> window;
    uint64_t begin = 0;
    for (uint64_t at = 0;;) {
        if (at + ChunkHeader::kBytes > begin + window.size()) {
            begin = at;
            window = TRY(file->read(begin, buffer.size() - kBlockBytes, buffer));
        }
        ChunkHeader header;
        // Zeros, the end of the file, or an incomplete record of a killed run.
        if (!ChunkHeader::decode(window.subspan(std::min<size_t>(at - begin, window.size())), header)) return {};
        found_[{header.object.instance, header.object.id, header.offset}] = {
            header.object, header.raw_bytes, {index, at, header.codec, header.stored_bytes, header.checksum}};
        at += ChunkHeader::kBytes + header.stored_bytes;
    }
}

}  // namespace gshm::core

#include "snapshot/compress.h"

#include <algorithm>
#include <new>
#include <zstd.h>

namespace gshm::core {
namespace {

constexpr size_t kSampleBytes = size_t{16} << 10;
constexpr size_t kSamples = 4;
// A smaller saving is not worth the time, for the writer or the reader.
constexpr size_t kWorthwhilePart = 16;

bool is_worthwhile(size_t stored, size_t raw) {
    return stored != 0 && stored < raw - raw / kWorthwhilePart;
}

}  // namespace

Compressor::Compressor(int level) : level_(level), context_(ZSTD_createCCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
}

Compressor::~Compressor() {
    ZSTD_freeCCtx(context_);
}

size_t Compressor::try_compress(std::span<const std::byte> bytes) {
    frame_.resize(std::max(frame_.size(), ZSTD_compressBound(bytes.size())));
    const size_t size = ZSTD_compressCCtx(context_, frame_.data(), frame_.size(), bytes.data(), bytes.size(), level_);
    return ZSTD_isError(size) ? 0 : size;
}

bool Compressor::looks_compressible(std::span<const std::byte> bytes) {
    if (bytes.size() <= 2 * kSamples * kSampleBytes) return true;
    const size_t stride = (bytes.size() - kSampleBytes) / (kSamples - 1);
    for (size_t i = 0; i < kSamples; ++i)
        if (is_worthwhile(try_compress(bytes.subspan(i * stride, kSampleBytes)), kSampleBytes)) return true;
    return false;
}

std::span<const std::byte> Compressor::compress(std::span<const std::byte> bytes) {
    if (level_ == 0 || !looks_compressible(bytes)) return {};
    const size_t size = try_compress(bytes);
    if (!is_worthwhile(size, bytes.size())) return {};
    return {frame_.data(), size};
}

Decompressor::Decompressor() : context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
}

Decompressor::~Decompressor() {
    ZSTD_freeDCtx(context_);
}

bool Decompressor::decompress(std::span<const std::byte> frame, std::span<std::byte> ret_bytes) {
    const size_t size = ZSTD_decompressDCtx(context_, ret_bytes.data(), ret_bytes.size(), frame.data(), frame.size());
    return !ZSTD_isError(size) && size == ret_bytes.size();
}

}  // namespace gshm::core

// zstd compression of chunks that benefit from it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace gshm::core {

// For one thread.
class Compressor {
public:
    explicit Compressor(int level);  // 0: never compresses
    Compressor(const Compressor&) = delete;
    Compressor& operator=(const Compressor&) = delete;
    ~Compressor();

    // The frame, valid until the next call; empty if it would not be smaller. A small sample is tried first, so that
    // incompressible data costs almost nothing.
    std::span<const std::byte> compress(std::span<const std::byte> bytes);

private:
    bool looks_compressible(std::span<const std::byte> bytes);
    size_t try_compress(std::span<const std::byte> bytes);

    int level_;
    ZSTD_CCtx_s* context_;
    std::vector<std::byte> frame_;
};

class Decompressor {
public:
    Decompressor();
    Decompressor(const Decompressor&) = delete;
    Decompressor& operator=(const Decompressor&) = delete;
    ~Decompressor();

    // False unless the frame is complete and fills ret_bytes exactly.
    bool decompress(std::span<const std::byte> frame, std::span<std::byte> ret_bytes);

private:
    ZSTD_DCtx_s* context_;
};

}  // namespace gshm::core

// fakecuda, a test double of NVIDIA's driver: copies and fills. They are done when the call returns on a default
// stream, and later by the stream's thread on any other.
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "call.h"
#include "stream.h"

namespace fakecuda {
namespace {

// A stretch of one memfd.
struct Piece {
    std::shared_ptr<Allocation> memory;
    size_t offset;
    size_t size;
};

// The memory behind a range, which may go over mappings side by side in one reservation. Empty: some of it is not
// mapped, or the device may not do that with it.
std::vector<Piece> find_pieces(Call& call, const Device& device, CUdeviceptr pointer, size_t bytes, int wanted) {
    std::vector<Piece> pieces;
    if (state().reservation_at(pointer, bytes) == nullptr) return {};
    while (bytes > 0) {
        CUdeviceptr start = 0;
        Mapping* mapping = call.mapping(pointer, &start);
        if (mapping == nullptr) return {};
        auto access = mapping->access.find(device.physical);
        if (access == mapping->access.end() || (access->second & wanted) != wanted) return {};
        size_t skipped = pointer - start;
        size_t size = std::min(bytes, mapping->size - skipped);
        pieces.push_back({mapping->memory, mapping->offset + skipped, size});
        pointer += size;
        bytes -= size;
    }
    return pieces;
}

// Calls step(fd, offset, done, bytes) until all is done; it says how far it got. False: it got nowhere, since the
// host's address is wrong or the machine has no memory left.
template <typename Step>
bool for_all(const std::vector<Piece>& pieces, const Step& step) {
    size_t done = 0;
    for (const Piece& piece : pieces) {
        for (size_t at = 0; at < piece.size;) {
            ssize_t moved = step(piece.memory->fd, static_cast<off_t>(piece.offset + at), done, piece.size - at);
            if (moved <= 0) return false;
            at += static_cast<size_t>(moved);
            done += static_cast<size_t>(moved);
        }
    }
    return true;
}

ssize_t fill(int fd, off_t offset, size_t bytes, unsigned char value) {
    // Pages that a hole gives back read as zero: a large device costs no memory until it is used.
    if (value == 0 && bytes >= kGranularity &&
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(bytes)) == 0) {
        return static_cast<ssize_t>(bytes);
    }
    constexpr size_t kChunk = size_t{1} << 20;
    const std::string chunk(std::min(bytes, kChunk), static_cast<char>(value));
    return pwrite(fd, chunk.data(), chunk.size(), offset);
}

// Executes the work in stream order. The lock is released while bytes move, and taken again to destroy the captures.
CUresult in_turn(Call& call, CUstream stream, Work work) {
    if (Lane* lane = lane_of(stream)) {
        lane->put(std::move(work));
        return kSuccess;
    }
    wait_for_turn(call, stream);
    call.unlock();
    const bool all = work();
    call.relock();
    work = nullptr;
    return all ? kSuccess : kErrorInvalidValue;
}

// The common part of all copies except those inside the device.
template <typename Step>
CUresult run(Symbol symbol, CUdeviceptr pointer, size_t bytes, CUstream stream, int wanted, Step step) {
    Call call(symbol, Scope::context);
    const bool known_stream = call.use_stream(stream);
    call.mapping(pointer);
    if (CUresult refused = call.refusal()) return refused;
    if (!known_stream) return kErrorInvalidHandle;
    if (bytes == 0) return kSuccess;
    auto pieces = find_pieces(call, call.context_device(), pointer, bytes, wanted);
    if (pieces.empty()) return kErrorInvalidValue;
    return in_turn(call, stream, [pieces = std::move(pieces), step] { return for_all(pieces, step); });
}

}  // namespace

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, size_t bytes, CUstream stream) {
    return run(Symbol::cuMemcpyHtoDAsync_v2, destination, bytes, stream, kMemAccessProtReadWrite,
               [source](int fd, off_t offset, size_t done, size_t left) {
                   return pwrite(fd, static_cast<const char*>(source) + done, left, offset);
               });
}

CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) {
    return run(Symbol::cuMemcpyDtoHAsync_v2, source, bytes, stream, kMemAccessProtRead,
               [destination](int fd, off_t offset, size_t done, size_t left) {
                   return pread(fd, static_cast<char*>(destination) + done, left, offset);
               });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
    Call call(Symbol::cuMemcpyDtoDAsync_v2, Scope::context);
    const bool known_stream = call.use_stream(stream);
    call.mapping(destination);
    call.mapping(source);
    if (CUresult refused = call.refusal()) return refused;
    if (!known_stream) return kErrorInvalidHandle;
    if (bytes == 0) return kSuccess;
    auto from = find_pieces(call, call.context_device(), source, bytes, kMemAccessProtRead);
    auto to = find_pieces(call, call.context_device(), destination, bytes, kMemAccessProtReadWrite);
    if (from.empty() || to.empty()) return kErrorInvalidValue;
    return in_turn(call, stream, [from = std::move(from), to = std::move(to), bytes] {
        std::vector<char> bounce(bytes);
        return for_all(from, [&](int fd, off_t offset, size_t done,
                                 size_t left) { return pread(fd, bounce.data() + done, left, offset); }) &&
               for_all(to, [&](int fd, off_t offset, size_t done, size_t left) {
                   return pwrite(fd, bounce.data() + done, left, offset);
               });
    });
}

// Host memory is as fast registered as not; the driver's refusals are kept.
CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
    Call call(Symbol::cuMemHostRegister_v2, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (memory == nullptr || bytes == 0) return kErrorInvalidValue;
    auto* begin = static_cast<const char*>(memory);
    state().registered[begin] = begin + bytes;
    return kSuccess;
}

// Host and device use the same addresses.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* memory, unsigned flags) {
    Call call(Symbol::cuMemHostGetDevicePointer_v2, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    if (pointer == nullptr || flags != 0 || !state().is_registered(memory)) return kErrorInvalidValue;
    *pointer = reinterpret_cast<CUdeviceptr>(memory);
    return kSuccess;
}

CUresult cuMemHostUnregister(void* memory) {
    Call call(Symbol::cuMemHostUnregister, Scope::context);
    if (CUresult refused = call.refusal()) return refused;
    return state().registered.erase(static_cast<const char*>(memory)) == 0 ? kErrorHostMemoryNotRegistered : kSuccess;
}

CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t bytes, CUstream stream) {
    return run(Symbol::cuMemsetD8Async, destination, bytes, stream, kMemAccessProtReadWrite,
               [value](int fd, off_t offset, size_t, size_t left) { return fill(fd, offset, left, value); });
}

}  // namespace fakecuda

// The daemon's end of a ring whose client writes anything anywhere: no more is taken than can be completed, nothing
// outside of the memory is touched, and a broken ring stays broken.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ring/consumer.h"
#include "ring/producer.h"

namespace {

using namespace gshm::core;

constexpr uint32_t kEntries = 8;

void require(bool holds) {
    if (!holds) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static auto producer = ring::Producer::create(kEntries).value();
    static auto mapping = Mapping::create(producer.memory(), ring::memory_bytes(kEntries), true).value();
    auto& header = *reinterpret_cast<ring::Header*>(mapping.data());
    memset(mapping.data(), 0, mapping.size());
    header.magic = ring::kMagic;
    header.version = ring::kVersion;
    header.entries = kEntries;
    auto consumer = ring::Consumer::create(UniqueFd::clone(producer.memory()).value(),
                                           UniqueFd::clone(producer.doorbell()).value());
    require(consumer.has_value());
    uint32_t under_way = 0;
    // Three bytes of the input are one step: an operation and its arguments.
    for (; size >= 3; data += 3, size -= 3) {
        uint32_t value = 0;
        memcpy(&value, data + 1, 2);
        switch (data[0] % 8) {
            case 0: header.submitted = header.submitted + value % (kEntries + 2); break;
            case 1: header.taken = header.taken + value % (kEntries + 2); break;
            case 2: header.submitted = value * 0x10001u; break;
            case 3: header.taken = value * 0x10001u; break;
            case 4: mapping.data()[value % mapping.size()] = std::byte{data[2]}; break;
            case 5:
                header.wake_at = value;
                header.waiting = 1;
                break;
            default: break;
        }
        ring::Entry entry;
        for (uint32_t taken = 0; consumer->take(&entry); ++taken) {
            ++under_way;
            require(taken <= 2 * kEntries);
        }
        if (under_way > 0 && data[0] >= 128) {
            consumer->post({0, entry.token, 0});
            if (data[0] >= 192) consumer->flush();
            --under_way;
        }
        if (consumer->is_broken()) require(!consumer->take(&entry));
    }
    return 0;
}

#include "base/address_range.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>

namespace gshm::core {

RangeAccess range_access(uint64_t address, uint64_t bytes) {
    if (bytes == 0 || address > UINT64_MAX - bytes) return RangeAccess::none;
    std::unique_ptr<FILE, int (*)(FILE*)> maps(fopen("/proc/self/maps", "re"), fclose);
    if (!maps) return RangeAccess::none;
    RangeAccess least = RangeAccess::write;
    const uint64_t end = address + bytes;
    // Lines are sorted by address. Only the uninteresting end of a line can be longer than this.
    char line[256];
    bool begins = true;
    while (address < end && fgets(line, sizeof line, maps.get()) != nullptr) {
        const bool is_line = begins;
        begins = std::find(std::begin(line), std::end(line), '\n') != std::end(line);
        uint64_t from = 0;
        uint64_t to = 0;
        char rights[5] = {};
        if (!is_line || sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, rights) != 3 || to <= address) continue;
        if (from > address || rights[0] != 'r') return RangeAccess::none;
        if (rights[1] != 'w') least = RangeAccess::read;
        address = to;
    }
    return address < end ? RangeAccess::none : least;
}

}  // namespace gshm::core

// A store with two memory devices, and a create() that also adds the extents it needs.
#pragma once

#include "store/store.h"
#include "support/memory_device.h"

namespace gshm::core::test {

struct StoreRig {
    explicit StoreRig(uid_t owner = 0) : store(clock, reclaimer, {owner, owner, 1, {}}, {first.info(), second.info()}) {
        reclaimer.extents = &store.extents();
    }

    Result<Object*> create(SessionId session, CreateSpec spec) {
        for (;;) {
            auto made = TRY(store.create(session, spec));
            if (auto* object = std::get_if<Object*>(&made)) return *object;
            const auto& need = std::get<ExtentNeed>(made);
            auto& device = need.device == 0 ? first : second;
            std::shared_ptr<Extent> memory = TRY(device.allocate(need.size_bytes, {need.compressible}));
            auto* extent = store.extents().add(need, std::move(memory));
            if (!need.slab) spec.extent = extent;
        }
    }
    Result<Object*> create(SessionId session, std::string_view name, uint64_t size = 1000, uint16_t mode = 0600,
                           uint32_t flags = 0) {
        return create(session, CreateSpec{name, size, 0, mode, flags, nullptr, nullptr});
    }

    ManualClock clock;
    ImmediateReclaimer reclaimer;
    MemoryDevice first{"memory:0", uint64_t{1} << 30, true};
    MemoryDevice second{"memory:1", uint64_t{16} << 20};
    Store store;
};

inline int code_of(const auto& result) {
    return result ? 0 : result.error().code;
}

}  // namespace gshm::core::test

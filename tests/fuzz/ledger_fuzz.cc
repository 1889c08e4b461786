// A ledger of an earlier daemon with arbitrary contents. Invalid entries are dropped, and all restored leases can be
// released.
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "fuse/known_nodes.h"
#include "fuzz/input.h"
#include "store/files.h"
#include "store/restore.h"
#include "support/store_rig.h"

namespace gshm::core::fuzz {
namespace {

constexpr size_t kLedgerBytes = size_t{512} << 10;
constexpr NodeId kObjects = 4;  // their ids begin at 2; then a directory

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

// Entries with sense in them, and any bytes.
uint64_t fill(Input& input, std::span<uint64_t> memory) {
    if (input.below(4) == 0) {
        const auto bytes = input.take_all();
        const size_t count = std::min(bytes.size(), kLedgerBytes);
        memcpy(memory.data(), bytes.data(), count);
        return count;
    }
    uint64_t used = 0;
    Ledger ledger(std::as_writable_bytes(memory), 0, [&](uint64_t bytes) -> Status {
        used = bytes;
        return {};
    });
    while (!input.at_end() && ledger.reserve(1)) {
        const auto kind = static_cast<LedgerKind>(input.below(8));
        const uint64_t id = input.below(8) == 0 ? input.number(7) : input.below(6);
        const uint64_t node = input.below(8) == 0 ? input.number(8) : input.below(kObjects + 4);
        const uint64_t value = input.below(4) == 0 ? input.number(8) : uint64_t{input.below(4)} << 32 | input.below(4);
        ledger.add(kind, id, node, value, {input.below(6), input.below(3), input.below(3), input.below(3)});
    }
    return used;
}

void run(Input input) {
    static std::vector<uint64_t> memory(kLedgerBytes / 8);
    memset(memory.data(), 0, kLedgerBytes);
    const bool with_mount = input.below(2) != 0;
    const uint8_t living = input.byte();
    uint64_t used = fill(input, memory);

    test::StoreRig rig;
    Store& store = rig.store;
    Ledger ledger(std::as_writable_bytes(std::span(memory)), used, [&](uint64_t) -> Status { return {}; });
    const bool salvage = (living & 0x80) != 0;
    if (!salvage && !ledger.check()) return;
    if (salvage) ledger.drop_damaged();
    if (!store.set_ledger(&ledger)) return;
    Restorer restorer(store, salvage ? Restorer::Mode::salvage : Restorer::Mode::strict);
    SavedExtent extent;
    extent.key = extent.id = 1;
    extent.shown_bytes = 64 << 10;
    extent.memory = *rig.first.allocate(64 << 10, {});
    require(restorer.add(std::move(extent)).has_value(), "an extent is taken");
    for (NodeId id = 1; id <= kObjects + 2; ++id) {
        SavedNode node;
        node.id = id;
        node.kind = id == 1 || id == kObjects + 2 ? NodeKind::directory : NodeKind::object;
        node.mode = 0777;
        if (id > 1) node.links.push_back({1, id, "n" + std::to_string(id)});
        if (id == 3) node.links.clear();  // held, or gone
        if (id == 2) {
            node.extent = 1;
            node.size_bytes = 64 << 10;
        }
        node.device = 0;
        node.flags = id == 2 ? uint32_t{kCreateDedicated} : 0;
        if (id == 4) node.creator = 1;
        require(restorer.add(node).has_value(), "a node is taken");
    }
    auto found = restorer.finish(with_mount ? Restorer::Refer(fuse::restore_known) : nullptr, [&](const auto& process) {
        return (living >> (static_cast<unsigned>(process.pid) % 7) & 1) != 0;
    });
    if (!found) return;
    const auto& alive = *found;

    Files files(store);
    for (Node* node : files.all()) {
        auto* object = as_object(node);
        if (object == nullptr || object->state == ObjectState::sealed) continue;
        if (auto opened = files.open(*object, Access::read, {1, 1, 1, {}}, 99)) files.close(*opened);
    }
    files.close_all();
    files.forget_all_backing();
    for (const auto& [session, process] : alive) store.end_session(session);
    fuse::KnownNodes(files).forget_all();
    for (Node* node : files.all()) {
        auto* object = as_object(node);
        if (object == nullptr) continue;
        require(object->leases == 0 && object->write_leases == 0 && object->session_leases == 0 &&
                    object->open_files == 0,
                "no lease is left when all are released");
    }
    require(store.session_count() == 0, "sessions end");
    store.set_ledger(nullptr);
}

}  // namespace
}  // namespace gshm::core::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    gshm::core::log_to_file("/dev/null");
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    gshm::core::fuzz::run(gshm::core::fuzz::Input(data, size));
    return 0;
}

#include "daemon/former_ledger.h"

#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"

namespace gshm::core {
namespace {

struct FormerEntry {
    uint64_t owner;  // as today: the kind in the highest byte, below it the id
    uint64_t value;
    uint64_t node;
    uint64_t more[5];  // the last is unused
};
static_assert(sizeof(FormerEntry) == 64);

}  // namespace

std::string former_ledger_path(const std::string& dir) {
    return dir + "/gshm.leases";
}

Status add_former_entries(const std::string& path, Ledger& into, const std::function<uint64_t(NodeId)>& extent_of) {
    auto file = UniqueFd::adopt(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return fail(errno, "{}: {}", path, strerror(errno));
    FormerEntry entry = {};
    for (off_t at = 0;; at += sizeof entry) {
        const ssize_t got = pread(file.get(), &entry, sizeof entry, at);
        if (got < 0) return fail(errno, "{}: {}", path, strerror(errno));
        if (got < static_cast<ssize_t>(sizeof entry)) return {};
        const uint64_t kind = entry.owner >> 56;
        if (kind == 0) continue;
        if (kind > static_cast<uint64_t>(LedgerKind::backing)) {
            return fail(EUCLEAN, "{}: the entry at {} is damaged", path, at);
        }
        uint64_t value = entry.value;
        // `maps` was not recorded. A writer may have mapped it.
        if (static_cast<LedgerKind>(kind) == LedgerKind::lease && static_cast<uint32_t>(value) != 0) {
            value |= uint64_t{1} << 63;
        }
        // A backing file was always that of the object's current extent.
        if (static_cast<LedgerKind>(kind) == LedgerKind::backing) value = extent_of(entry.node);
        TRY(into.reserve(1));
        into.add(static_cast<LedgerKind>(kind), entry.owner & ((uint64_t{1} << 56) - 1), entry.node, value,
                 {entry.more[0], entry.more[1], entry.more[2], entry.more[3]});
    }
}

}  // namespace gshm::core

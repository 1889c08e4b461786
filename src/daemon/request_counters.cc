#include "daemon/request_counters.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gshm::core {
namespace {

constexpr size_t kKinds = static_cast<size_t>(wire::RequestBody::MAX) + 1;
// Results of their own. All others count as the first; the second is success.
constexpr int kResults[] = {
    -1,     0,         EPERM,        ENOENT,    EINTR,     EIO,    EBADF,     EAGAIN,    ENOMEM,     EACCES,  EBUSY,
    EEXIST, EXDEV,     ENODEV,       ENOTDIR,   EISDIR,    EINVAL, ENFILE,    EMFILE,    EFBIG,      ENOSPC,  EROFS,
    EMLINK, ERANGE,    ENOSYS,       ELOOP,     ENODATA,   EPROTO, EBADMSG,   EOVERFLOW, EOPNOTSUPP, E2BIG,   EUSERS,
    ESTALE, ENOTEMPTY, ENAMETOOLONG, ETIMEDOUT, ECANCELED, EDQUOT, ESHUTDOWN, EUCLEAN,   ECONNRESET, EALREADY};
constexpr size_t kOther = 0;
constexpr size_t kOk = 1;

constexpr int kErrors = 134;
constexpr std::array<uint8_t, kErrors> kPlaces = [] {
    std::array<uint8_t, kErrors> places = {};
    for (size_t i = kOk; i < std::size(kResults); ++i)
        places[static_cast<size_t>(kResults[i])] = static_cast<uint8_t>(i);
    return places;
}();

size_t place_of(int error) {
    return error >= 0 && error < kErrors ? kPlaces[static_cast<size_t>(error)] : kOther;
}

std::string name_of(size_t place) {
    if (place == kOther) return "other";
    if (place == kOk) return "ok";
    return strerrorname_np(kResults[place]);
}

struct Block {
    std::array<std::array<Count, std::size(kResults)>, kKinds> results;
    std::array<CountedDurations, kKinds> durations;
};
using Blocks = ThreadBlocks<Block>;

}  // namespace

void RequestCounters::note(wire::RequestBody kind, int error, uint64_t ns) {
    Block& block = Blocks::mine();
    const auto number = std::min(static_cast<size_t>(kind), kKinds - 1);
    increase(block.results[number][place_of(error)]);
    block.durations[number].add(ns);
}

std::vector<RequestCounters::Kind> RequestCounters::kinds() {
    std::vector<Kind> kinds;
    for (size_t number = 0; number < kKinds; ++number) {
        std::array<uint64_t, std::size(kResults)> results = {};
        Kind kind{static_cast<wire::RequestBody>(number), {}, {}};
        Blocks::for_each([&](const Block& block) {
            for (size_t i = 0; i < results.size(); ++i) {
                results[i] += block.results[number][i].load(std::memory_order_relaxed);
            }
            kind.durations.add(block.durations[number]);
        });
        for (size_t i = 0; i < results.size(); ++i) {
            if (results[i] != 0 || i == kOk) kind.results.emplace_back(name_of(i), results[i]);
        }
        const bool has_occurred = std::ranges::any_of(results, [](uint64_t count) { return count != 0; });
        if (has_occurred) kinds.push_back(std::move(kind));
    }
    return kinds;
}

uint64_t RequestCounters::refusals_of_limits() {
    uint64_t refusals = 0;
    Blocks::for_each([&](const Block& block) {
        for (const auto& results : block.results) refusals += results[place_of(EDQUOT)].load(std::memory_order_relaxed);
    });
    return refusals;
}

}  // namespace gshm::core

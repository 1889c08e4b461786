#include "daemon/journal_shares.h"

#include <algorithm>

namespace gshm::core {

uint64_t JournalShares::remaining(const Share& share, uint64_t begin, uint64_t end) {
    return share.from >= begin ? share.bytes : std::min(share.bytes, end - std::min(begin, end));
}

void JournalShares::add(const Journal& journal, uid_t uid, uint64_t from) {
    const uint64_t bytes = journal.end() - from;
    if (bytes == 0) return;
    constexpr size_t kMany = 1000;
    const uint64_t begin = journal.begin();
    MutexLock lock(mutex_);
    if (shares_.size() > kMany) std::erase_if(shares_, [&](const auto& entry) { return entry.second.from < begin; });
    Share& share = shares_[uid];
    share.bytes = remaining(share, begin, from) + bytes;
    share.from = std::max(share.from, begin);
}

bool JournalShares::is_large(const Journal& journal, uid_t uid) {
    MutexLock lock(mutex_);
    const auto found = shares_.find(uid);
    return found != shares_.end() && remaining(found->second, journal.begin(), journal.end()) >= journal.capacity() / 2;
}

}  // namespace gshm::core

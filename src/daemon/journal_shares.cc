#include "daemon/journal_shares.h"

namespace gshm::core {

void JournalShares::add(const Journal& journal, uid_t uid, uint64_t from) {
    const uint64_t bytes = journal.end() - from;
    if (bytes == 0) return;
    constexpr size_t kMany = 1000;
    const uint64_t begin = journal.begin();
    MutexLock lock(mutex_);
    if (shares_.size() > kMany) std::erase_if(shares_, [&](const auto& entry) { return entry.second.from < begin; });
    Share& share = shares_[uid];
    if (share.from < begin) share = {from, 0};
    share.bytes += bytes;
}

bool JournalShares::is_large(const Journal& journal, uid_t uid) {
    MutexLock lock(mutex_);
    const auto found = shares_.find(uid);
    return found != shares_.end() && found->second.from >= journal.begin() &&
           found->second.bytes >= journal.capacity() / 2;
}

}  // namespace gshm::core

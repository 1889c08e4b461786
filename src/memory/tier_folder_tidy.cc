// Removals and facts of a tier's folder, in a thread of their own: neither may keep the store waiting.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "memory/tier_folder.h"

namespace gshm::core {

void TierFolder::schedule() {
    ++asked_;
    if (std::exchange(tidying_, true)) return;
    worker_.submit([this] { tidy(); });
}

void TierFolder::remove(Number number) {
    MutexLock lock(mutex_);
    const auto found = files_.find(number);
    if (found == files_.end()) return;
    leaving_.emplace_back(number, found->second.bytes);
    files_.erase(found);
    new_facts_.erase(number);
    schedule();
}

void TierFolder::set_facts(Number number, std::string facts) {
    if (!spec_.keep || facts.size() > TierFactsHeader::kFactsBytes) return;
    MutexLock lock(mutex_);
    const auto found = files_.find(number);
    if (found == files_.end()) return;
    found->second.kept = false;
    new_facts_.insert_or_assign(number, std::move(facts));
    schedule();
}

void TierFolder::wait_for_removals() {
    MutexLock lock(mutex_);
    const uint64_t asked = asked_;
    while (answered_ < asked) lock.wait(tidied_);
}

Status TierFolder::wait_for_facts() {
    MutexLock lock(mutex_);
    const uint64_t asked = asked_;
    while (answered_ < asked) lock.wait(tidied_);
    return facts_status_;
}

void TierFolder::tidy() {
    MutexLock lock(mutex_);
    while (answered_ < asked_) {
        const uint64_t asked = asked_;
        const auto leaving = std::exchange(leaving_, {});
        TierFactsLog::Batch facts;
        for (auto& [number, bytes] : std::exchange(new_facts_, {})) facts.emplace_back(number, std::move(bytes));
        lock.unlock();
        if (!leaving.empty()) remove_files(leaving);
        Status written = write_facts(facts);
        lock.lock();
        // Without room they wait for the next call. Later ones win.
        if (!written && written.error().code == ENOSPC)
            for (auto& [number, bytes] : facts)
                if (files_.contains(number)) new_facts_.try_emplace(number, std::move(bytes));
        if (!written && (facts_status_ || facts_status_.error().code != written.error().code))
            log_error("the tier {} does not have the latest names and rights of its objects: {}", path(),
                      written.error().message);
        facts_status_ = std::move(written);
        answered_ = asked;
        tidied_.notify_all();
    }
    tidying_ = false;
}

void TierFolder::remove_files(const std::vector<std::pair<Number, uint64_t>>& leaving) {
    for (const auto& [number, bytes] : leaving) {
        if (disk_.remove(folder_.get(), tier_file_name(number).c_str()) != 0 && errno != ENOENT) {
            note_failure(fmt::format("{} cannot be removed: {}", path_of(number), strerror(errno)));
            continue;
        }
        MutexLock lock(mutex_);
        used_bytes_ -= bytes;
    }
    if (!spec_.keep) return;
    // So that no object that is gone comes back after the machine's restart. Facts without a file mean nothing.
    if (disk_.sync(folder_.get()) != 0) (void)disk_error({errno, fmt::format("{}: {}", path(), strerror(errno))});
    MutexLock lock(facts_mutex_);
    for (const auto& [number, bytes] : leaving) facts_->forget(number);
}

Status TierFolder::write_facts(const TierFactsLog::Batch& batch) {
    if (!spec_.keep) return {};
    MutexLock lock(facts_mutex_);
    const uint64_t need = TierFactsLog::bytes_of(batch);
    auto has_room = [&] {
        MutexLock state(mutex_);
        return used_bytes_ <= capacity_bytes_ && need <= capacity_bytes_ - used_bytes_;
    };
    uint64_t before = facts_->bytes();
    if (facts_->is_wasteful() || (need > 0 && !has_room() && facts_->wasted_bytes() > 0)) {
        auto compacted = facts_->compact();
        {
            MutexLock state(mutex_);
            used_bytes_ = used_bytes_ - before + facts_->bytes();
        }
        if (!compacted) return disk_error(compacted.error());
        before = facts_->bytes();
    }
    if (need == 0) return {};
    {
        MutexLock state(mutex_);
        if (used_bytes_ > capacity_bytes_ || need > capacity_bytes_ - used_bytes_)
            return fail(ENOSPC, "the tier {} has no room for them: {} of {} are used", path(), size_text(used_bytes_),
                        size_text(capacity_bytes_));
        used_bytes_ += need;
    }
    auto appended = facts_->append(batch);
    {
        MutexLock state(mutex_);
        used_bytes_ = used_bytes_ - need - before + facts_->bytes();
    }
    if (!appended) return disk_error(appended.error());
    return {};
}

void TierFolder::kept(const Each& each) {
    if (!spec_.keep) return;
    std::vector<Number> numbers;
    {
        MutexLock lock(mutex_);
        for (const auto& [number, file] : files_)
            if (file.kept) numbers.push_back(number);
    }
    std::ranges::sort(numbers);
    for (const Number number : numbers) {
        auto facts = [&] {
            MutexLock lock(facts_mutex_);
            return facts_->read(number);
        }();
        if (facts) {
            each(number, *facts);
            continue;
        }
        log_error("the object in {} is lost: {}", path_of(number), facts.error().message);
        remove(number);
    }
}

}  // namespace gshm::core

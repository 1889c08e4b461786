// The space of the runtime folder for the catalog: its journal is emptied, and a reserve is kept back.
#include "base/log.h"
#include "daemon/survival.h"

namespace gshm::core {

Status Survival::drain() {
    const bool empty = memory_->journal().is_empty();
    auto drained = catalog_->drain();
    if (!drained) drained = catalog_->drain();  // a failure that passes is none
    if (!drained && drained.error().code == ENOSPC) {
        reserve_.give_up();
        drained = catalog_->drain_in_parts();
    }
    if (drained) keep_space();
    if (!drained && !failing_.exchange(true)) {
        log_error("{}: nothing can be changed until it can be written", drained.error().message);
    }
    if (drained && !empty && failing_.exchange(false)) log_info("the catalog can be written again");
    return drained;
}

void Survival::make_room_for(uid_t uid) {
    if (memory_ && catalog_ && !is_failing() && shares_.is_large(memory_->journal(), uid)) (void)drain();
}

void Survival::keep_space() {
    constexpr std::chrono::seconds kLookAgain{1};
    if (budgets_ == nullptr) return;
    reserve_.keep();
    budgets_->set_folder_full(reserve_.is_needed());
    catalog_->set_tight(reserve_.is_needed());
    // Another program may free space, which gshmd is not told.
    if (!reserve_.is_needed() || looks_for_space_.exchange(true)) return;
    loop_.after(kLookAgain, [this] {
        looks_for_space_ = false;
        keep_space();
    });
}

}  // namespace gshm::core

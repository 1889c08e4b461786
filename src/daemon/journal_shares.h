// The rows of each user in the catalog's journal. A user who fills it must not make the commits of others wait for the
// file: see Survival::make_room_for(). Safe from any thread.
#pragma once

#include <cstdint>
#include <sys/types.h>
#include <unordered_map>

#include "base/mutex.h"
#include "catalog/journal.h"

namespace gshm::core {

class JournalShares {
public:
    // The entries between `from` and the end of the journal have rows of the user.
    void add(const Journal& journal, uid_t uid, uint64_t from) EXCLUDES(mutex_);
    // Rows of the user fill half of the journal, as far as it was not emptied meanwhile.
    bool is_large(const Journal& journal, uid_t uid) EXCLUDES(mutex_);

private:
    struct Share {
        uint64_t from = 0;  // the place of the first entry
        uint64_t bytes = 0;
    };
    // Of its bytes, those that a journal with these places may still have.
    static uint64_t remaining(const Share& share, uint64_t begin, uint64_t end);

    Mutex mutex_;
    std::unordered_map<uid_t, Share> shares_ GUARDED_BY(mutex_);  // of users with entries, and some without
};

}  // namespace gshm::core

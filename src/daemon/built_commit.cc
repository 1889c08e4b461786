// Separate from metrics.cc: its definition changes with every commit.
#include "daemon/metrics.h"

namespace gshm::core {

const char* built_commit() {
    return GSHM_COMMIT;
}

}  // namespace gshm::core

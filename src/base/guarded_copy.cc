#include "base/guarded_copy.h"

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

namespace gshm::core {
namespace {

// Jump target; null: not in a guarded copy. Volatile, since the signal handler reads it.
thread_local sigjmp_buf* volatile escape = nullptr;

void on_bus_error(int) {
    if (escape != nullptr) siglongjmp(*escape, 1);
    // Not in a guarded copy: the access repeats and is fatal.
    signal(SIGBUS, SIG_DFL);
}

void install() {
    struct sigaction action = {};
    action.sa_handler = on_bus_error;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

bool guarded_copy(void* destination, const void* source, size_t bytes) {
    static std::once_flag once;
    std::call_once(once, install);
    sigjmp_buf here;
    if (sigsetjmp(here, 0) != 0) {
        escape = nullptr;
        return false;
    }
    escape = &here;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    memcpy(destination, source, bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    escape = nullptr;
    return true;
}

}  // namespace gshm::core

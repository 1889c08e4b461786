#include "client/fork.h"

#include <atomic>
#include <mutex>
#include <pthread.h>
#include <unordered_set>

namespace gshm::core::client {
namespace {

struct Registry {
    std::mutex mutex;  // held across fork(), so that the child sees a consistent set
    std::unordered_set<ForkSensitive*> members;
    std::atomic<uint64_t> generation{1};
};

Registry& registry() {
    static auto* instance = new Registry;  // never destroyed: fork() may happen during exit
    return *instance;
}

void before_fork() {
    registry().mutex.lock();
}

void in_parent() {
    registry().mutex.unlock();
}

void in_child() {
    registry().generation.fetch_add(1);
    for (ForkSensitive* member : registry().members) member->abandon_in_child();
    registry().members.clear();
    registry().mutex.unlock();
}

void install_handlers() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(before_fork, in_parent, in_child); });
}

}  // namespace

ForkSensitive::ForkSensitive() {
    install_handlers();
    std::lock_guard lock(registry().mutex);
    registry().members.insert(this);
}

ForkSensitive::~ForkSensitive() {
    std::lock_guard lock(registry().mutex);
    registry().members.erase(this);
}

uint64_t fork_count() {
    install_handlers();
    return registry().generation.load(std::memory_order_relaxed);
}

Status check_fork_count(uint64_t remembered) {
    if (remembered == registry().generation.load(std::memory_order_relaxed)) return {};
    return fail(ECHILD, "this handle was made before fork(): call gshm_connect again in the child");
}

}  // namespace gshm::core::client

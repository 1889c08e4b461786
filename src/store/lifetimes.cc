#include "store/lifetimes.h"

namespace gshm::core {

void DeleteLifetime::operator()(Lifetime* lifetime) const {
    delete lifetime;
}

void Store::note_use(Lifetime& lifetime) const {
    lifetime.from_ns.store(clock_.steady_ns(), std::memory_order_relaxed);
}

}  // namespace gshm::core

#include "store/account_limits.h"

namespace gshm::core {

void TreeAccountDeleter::operator()(TreeAccount* account) const {
    delete account;
}

}  // namespace gshm::core

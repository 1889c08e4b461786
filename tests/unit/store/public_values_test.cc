// Numbers that the store, the protocol and the public header share. The store does not include that header.
#include "device/device.h"
#include "store/account_limits.h"
#include "store/acl.h"
#include "store/watches.h"
#include <gshm/gshm.h>

namespace gshm::core {
namespace {

template <typename Enum>
constexpr auto number(Enum value) {
    return static_cast<uint32_t>(value);
}

static_assert(number(kCreateKeep) == GSHM_KEEP);
static_assert(number(kCreateCompressible) == GSHM_COMPRESSIBLE);
static_assert(number(kCreateDedicated) == GSHM_DEDICATED);
static_assert(number(kCreateUnnamed) == GSHM_UNNAMED);
static_assert(number(kCreateOwner) == GSHM_OWNER);
static_assert(number(kCreateEmpty) == GSHM_EMPTY);
static_assert(number(kCreateEvictable) == GSHM_EVICTABLE);
static_assert(number(kCreateEphemeral) == GSHM_CREATE_EPHEMERAL);
static_assert(number(kCreateTtlUnused) == GSHM_CREATE_TTL_UNUSED);
static_assert(kPinned == GSHM_STAT_PINNED);

static_assert(number(kChangeMode) == GSHM_CHANGE_MODE);
static_assert(number(kChangeOwner) == GSHM_CHANGE_OWNER);
static_assert(number(kChangeKeep) == GSHM_CHANGE_KEEP);

static_assert(number(NodeKind::object) == GSHM_KIND_OBJECT);
static_assert(number(NodeKind::directory) == GSHM_KIND_DIRECTORY);
static_assert(number(NodeKind::symlink) == GSHM_KIND_SYMLINK);
static_assert(number(NodeKind::special) == GSHM_KIND_SPECIAL);
static_assert(number(AclTag::owner) == GSHM_ACL_OWNER);
static_assert(number(AclTag::user) == GSHM_ACL_USER);
static_assert(number(AclTag::owning_group) == GSHM_ACL_OWNING_GROUP);
static_assert(number(AclTag::group) == GSHM_ACL_GROUP);
static_assert(number(AclTag::mask) == GSHM_ACL_MASK);
static_assert(number(AclTag::other) == GSHM_ACL_OTHER);
static_assert(number(ObjectState::open) == GSHM_STATE_OPEN);
static_assert(number(ObjectState::sealed) == GSHM_STATE_SEALED);

static_assert(number(EventKind::created) == GSHM_EVENT_CREATED);
static_assert(number(EventKind::sealed) == GSHM_EVENT_SEALED);
static_assert(number(EventKind::deleted) == GSHM_EVENT_DELETED);
static_assert(number(EventKind::renamed) == GSHM_EVENT_RENAMED);
static_assert(number(EventKind::replaced) == GSHM_EVENT_REPLACED);
static_assert(number(EventKind::existing) == GSHM_EVENT_EXISTING);
static_assert(number(EventKind::ready) == GSHM_EVENT_READY);
static_assert(number(EventKind::overflow) == GSHM_EVENT_OVERFLOW);
static_assert(number(EventKind::expired) == GSHM_EVENT_EXPIRED);

static_assert(number(LimitKind::user) == GSHM_LIMIT_USER);
static_assert(number(LimitKind::group) == GSHM_LIMIT_GROUP);
static_assert(number(LimitKind::directory) == GSHM_LIMIT_DIRECTORY);
static_assert(number(LimitKind::reserve) == GSHM_LIMIT_RESERVE);
static_assert(number(kLimitBytes) == GSHM_LIMIT_BYTES);
static_assert(number(kLimitSoftBytes) == GSHM_LIMIT_SOFT_BYTES);
static_assert(number(kLimitObjects) == GSHM_LIMIT_OBJECTS);
static_assert(number(kLimitSoftObjects) == GSHM_LIMIT_SOFT_OBJECTS);
static_assert(number(kLimitGrace) == GSHM_LIMIT_GRACE);
static_assert(number(kLimitsUsed) == GSHM_LIMITS_USED);
static_assert(number(kLimitsId) == GSHM_LIMITS_ID);
static_assert(number(kLimitsOwn) == GSHM_LIMITS_OWN);

static_assert(number(kHandlePosixFd) == GSHM_HANDLE_POSIX_FD);
static_assert(number(kHandleFabric) == GSHM_HANDLE_FABRIC);
static_assert(number(kHandleDmaBuf) == GSHM_HANDLE_DMABUF);

}  // namespace
}  // namespace gshm::core

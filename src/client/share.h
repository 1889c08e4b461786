// gshm_share() and gshm_unshare(): changes the ACLs of a name, of all that is below it, and of the directories above it.
// One request for each ACL.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/core.h"
#include "gshm/gshm.h"

namespace gshm::core::client {

// Values as in the request ChangeAcl.
enum class AclChange : uint8_t { replace = 1, add = 2, remove = 3 };

Result<std::vector<gshm_acl_entry>> get_acl(Core& core, const std::string& name, bool inherited);
Status change_acl(Core& core, const std::string& name, bool inherited, AclChange change,
                  std::span<const gshm_acl_entry> entries);

class Sharing {
public:
    // The users and groups have no rights, and each occurs once.
    Sharing(gshm_client* client, Core& core, std::vector<gshm_acl_entry> with)
        : client_(client), core_(core), with_(std::move(with)) {}

    // flags: gshm_share_flags. Returns the first error; the rest is done nevertheless.
    Status share(const std::string& name, uint32_t flags);
    // Without users and groups: removes whole ACLs.
    Status unshare(const std::string& name, bool recursive);
    const gshm_share_info& info() const { return info_; }

private:
    Result<gshm_stat_info> stat(const std::string& name);
    std::vector<gshm_acl_entry> with_rights(uint16_t rights) const;
    // Calls `change` for the node, and with `recursive` for all below it but symbolic links. A node that is removed
    // meanwhile is skipped.
    template <typename Change>
    void walk(const std::string& name, const gshm_stat_info& info, bool recursive, const Change& change);
    Status share_node(const std::string& name, const gshm_stat_info& info, bool write);
    Status unshare_node(const std::string& name, const gshm_stat_info& info);
    // Finds the users and groups that may not search the directory, and lets them if `open`.
    Status check_parent(const std::string& name, bool open);
    void note(const Status& status);

    gshm_client* client_;
    Core& core_;
    std::vector<gshm_acl_entry> with_;
    gshm_share_info info_ = GSHM_SHARE_INFO_INIT;
    std::optional<Error> first_;
};

}  // namespace gshm::core::client

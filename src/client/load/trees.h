// The directories of objects whose names are made from paths: one tree for each user.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "gshm/gshm.h"

namespace gshm::core::client {

Result<gshm_stat_info> stat_of(gshm_client* client, const std::string& name);
bool is_missing(const Error& error);

// A tree is a directory in the root, which is sticky, of its user, in which nobody else may write: loaded-UID. Any user may take
// that name first. The tree is then the first directory loaded-UID.* that fulfils this.
class Trees {
public:
    explicit Trees(gshm_client* client) : client_(client) {}

    // nullopt: the user has no tree.
    Result<std::optional<std::string>> find(uid_t uid);
    // The caller's tree, which is made if there is none.
    Result<std::string> make_own();
    // The name of a user's tree if no other user has it.
    static std::string usual_name(uid_t uid);

private:
    Result<std::optional<std::string>> look(uid_t uid);
    // Under another name than the usual one.
    Result<std::optional<std::string>> look_for_others(uid_t uid);

    gshm_client* client_;
    std::map<uid_t, std::optional<std::string>> known_;
};

}  // namespace gshm::core::client

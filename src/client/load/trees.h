// The directories of objects whose names are made from paths: one tree for each user.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "gshm/gshm.h"

namespace gshm::core::client {

Result<gshm_stat_info> stat_of(gshm_client* client, const std::string& name);
bool is_missing(const Error& error);

class Trees {
public:
    explicit Trees(gshm_client* client) : client_(client) {}

    const std::string& of(uid_t uid);
    // Makes the caller's tree, if there is none.
    Status make_own();

private:
    gshm_client* client_;
    std::map<uid_t, std::string> known_;
};

}  // namespace gshm::core::client

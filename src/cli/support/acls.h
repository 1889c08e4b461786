// ACLs as text: "user:bob:r--", as getfacl(1) prints them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/support/context.h"
#include "cli/support/text.h"

namespace gshm::cli {

bool has_acl(const StatInfo& info);
bool has_default_acl(const StatInfo& info);

// "r-x"
std::string rights_text(uint32_t rights);
// "alice", "@staff", or the number of one that has no name here.
std::string party_text(Accounts& accounts, const AclEntry& entry);
std::string entry_text(Accounts& accounts, const AclEntry& entry);
// The rights that the mask leaves.
uint32_t effective_rights(std::span<const AclEntry> acl, const AclEntry& entry);
std::vector<Record> acl_records(Accounts& accounts, std::span<const AclEntry> acl);

// With numbers instead of names, for snapshots: "user::rw-,user:1001:r--,…".
std::string acl_text(std::span<const AclEntry> acl);
// Throws a Failure for text that acl_text() does not write.
std::vector<AclEntry> parse_acl(std::string_view text, std::string_view subject);

// The users and groups of --to and --from: "alice", "1001", "@staff", "g:staff", "u:alice"; several with commas.
std::vector<AclEntry> parse_parties(const std::vector<std::string>& texts);

}  // namespace gshm::cli

// Helpers for writing and reading objects of the library.
#pragma once

#include <memory>
#include <string>

#include "gshm/gshm.h"
#include "integration/torture/journal.h"

namespace gshm::core::torture {

struct CloseHandle {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};
using ClientOwner = std::unique_ptr<gshm_client, CloseHandle>;
using ObjectOwner = std::unique_ptr<gshm_object, CloseHandle>;
using ListingOwner = std::unique_ptr<gshm_listing, CloseHandle>;

std::string failed(const std::string& what, int code);
std::string connect(const Task& task, ClientOwner* ret_client);
// A pattern that begins with its seed.
std::string bytes_of(const Version& version);
uint64_t seed_of(const std::string& bytes);
// A description of bytes that do not match the pattern.
std::string describe_bytes(const std::string& bytes);
// Reads a sealed object with all its bytes. ret_draft: it exists, but is not sealed.
// ret_full: set if it cannot return to its GPU; null: that is an error.
std::string look_at(gshm_client* client, const std::string& name, uint32_t flags, Version* ret_version, bool* ret_draft,
                    bool* ret_full = nullptr);

}  // namespace gshm::core::torture

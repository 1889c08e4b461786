// A tenant: a process that creates, opens, pins, evicts and drops objects at random, and checks what it holds and what
// it owns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "gshm/gshm.h"

namespace gshm::core::landlord {

inline constexpr unsigned kMostTenants = 256;

// In memory that all processes share.
struct Shared {
    std::atomic<bool> stop;
    std::atomic<bool> pause;  // tenants release everything and wait
    struct Tenant {
        std::atomic<bool> paused;
        std::atomic<uint64_t> steps;
        std::atomic<uint64_t> checks;   // of all bytes of an object
        std::atomic<uint64_t> refused;  // for want of space, limits or rights
        char error[512];
    } tenants[kMostTenants];
};

struct Task {
    Shared* shared = nullptr;
    Shared::Tenant* own = nullptr;
    unsigned number = 0;
    uint64_t seed = 0;
    std::string dir;
    std::vector<std::string> devices;
};

struct CloseHandle {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
    void operator()(gshm_limit_list* list) const { gshm_limit_list_free(list); }
};
using ClientOwner = std::unique_ptr<gshm_client, CloseHandle>;
using ObjectOwner = std::unique_ptr<gshm_object, CloseHandle>;
using ListingOwner = std::unique_ptr<gshm_listing, CloseHandle>;
using LimitsOwner = std::unique_ptr<gshm_limit_list, CloseHandle>;

std::string failed(const std::string& what, int code);
std::string connect(const std::string& dir, ClientOwner* ret_client);

// Runs until `stop`. "" or what is wrong.
std::string run_tenant(const Task& task);

}  // namespace gshm::core::landlord

// The library, as an attack uses it: a client that begins again when gshmd refuses or ends it.
#pragma once

#include <string>
#include <unistd.h>

#include "hostile/attack.h"
#include <gshm/gshm.h>

namespace gshm::core::hostile {

class Client {
public:
    explicit Client(std::string dir) : dir_(std::move(dir)) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { gshm_disconnect(client_); }

    // Null: refused.
    gshm_client* get() {
        if (client_ != nullptr) return client_;
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        options.dir = dir_.c_str();
        if (gshm_connect(&options, &client_) != 0) client_ = nullptr;
        return client_;
    }
    // Waits until there is one.
    gshm_client* wait() {
        while (get() == nullptr) usleep(1000);
        return client_;
    }
    // Null: refused.
    gshm_object* create(const std::string& name, uint64_t bytes, uint32_t flags) {
        if (get() == nullptr) return nullptr;
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name.c_str();
        spec.size_bytes = bytes;
        spec.device = "host";
        spec.flags = flags;
        gshm_object* object = nullptr;
        return gshm_create(client_, &spec, &object) == 0 ? object : nullptr;
    }

private:
    const std::string dir_;
    gshm_client* client_ = nullptr;
};

}  // namespace gshm::core::hostile

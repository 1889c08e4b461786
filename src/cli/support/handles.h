// Owners of the library's handles.
#pragma once

#include <memory>

#include <gshm/gshm.h>

namespace gshm::cli {

struct HandleDeleter {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};
using Client = std::unique_ptr<gshm_client, HandleDeleter>;
using Object = std::unique_ptr<gshm_object, HandleDeleter>;
using Listing = std::unique_ptr<gshm_listing, HandleDeleter>;

// A struct of the library that begins with its size.
template <typename T>
T sized() {
    T value{};
    value.struct_size = sizeof(T);
    return value;
}

}  // namespace gshm::cli

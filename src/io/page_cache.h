// The presence of a file in the page cache.
#pragma once

#include <cstdint>

namespace gshm::core::io {

// Whether most pages of a range are cached. False if unknown.
bool is_in_page_cache(int fd, uint64_t offset, uint64_t bytes);

}  // namespace gshm::core::io

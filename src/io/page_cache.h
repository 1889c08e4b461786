// What of a file is in the page cache.
#pragma once

#include <cstdint>

namespace gshm::io {

// Whether most of the pages of a range are. False where the kernel will not say.
bool is_in_page_cache(int fd, uint64_t offset, uint64_t bytes);

}  // namespace gshm::io

#include "base/mapping.h"

#include <sys/mman.h>

namespace gshm::core {

Result<Mapping> Mapping::create(int fd, size_t size_bytes, bool writable) {
    void* address = mmap(nullptr, size_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return fail_errno("cannot map shared memory");
    return Mapping(address, size_bytes);
}

Mapping::~Mapping() {
    if (address_ != nullptr) munmap(address_, size_);
}

}  // namespace gshm::core

#include "device/wrap.h"

#include <cstring>

#include "base/address_range.h"

namespace gshm::core {
namespace {

// The caller is responsible: unmapping the memory under an open handle raises a signal.
class WrappedHostExtent final : public Extent {
public:
    WrappedHostExtent(uint64_t address, uint64_t size, Access access) : Extent(address, size), access_(access) {}

    Status copy_in(uint64_t offset, std::span<const std::byte> source) override {
        TRY(check_range(offset, source.size()));
        TRY(check_writable());
        if (!source.empty()) memmove(at(offset), source.data(), source.size());
        return {};
    }
    Status copy_out(uint64_t offset, std::span<std::byte> destination) const override {
        TRY(check_range(offset, destination.size()));
        if (!destination.empty()) memmove(destination.data(), at(offset), destination.size());
        return {};
    }
    Status fill(uint64_t offset, uint64_t bytes, uint8_t value) override {
        TRY(check_range(offset, bytes));
        TRY(check_writable());
        memset(at(offset), value, bytes);
        return {};
    }
    Result<int> descriptor(Access) override {
        return fail(EOPNOTSUPP, "memory that gshm has not allocated cannot be exported as a descriptor");
    }

private:
    std::byte* at(uint64_t offset) const { return reinterpret_cast<std::byte*>(address() + offset); }
    Status check_writable() const {
        if (access_ == Access::read) return fail(EACCES, "this memory can only be read");
        return {};
    }

    Access access_;
};

}  // namespace

Result<WrappedHost> wrap_host(uint64_t address, uint64_t size_bytes) {
    const auto found = range_access(address, size_bytes);
    if (found == RangeAccess::none) {
        return fail(EINVAL, "a part of the {} bytes at {:#x} is not mapped", size_bytes, address);
    }
    const auto access = found == RangeAccess::write ? Access::write : Access::read;
    return WrappedHost{std::make_unique<WrappedHostExtent>(address, size_bytes, access), access};
}

}  // namespace gshm::core

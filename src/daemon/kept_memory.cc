#include "daemon/kept_memory.h"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gshm::core {
namespace {

constexpr uint64_t kFormatMask = 0x00ff'ffff'ffff'ffff;
// Rows of about ten thousand created objects.
constexpr uint64_t kJournalBytes = uint64_t{4} << 20;
constexpr uint64_t kJournalOffset = 4096;
constexpr uint64_t kHeadBytes = kJournalOffset + kJournalBytes;
// Reserved address space, for four million leases and open files. The file grows on demand.
constexpr uint64_t kMappedBytes = kHeadBytes + (uint64_t{256} << 20);

}  // namespace

Result<KeptMemory> KeptMemory::create() {
    KeptMemory made(UniqueFd::adopt(memfd_create("gshm-ledger", MFD_CLOEXEC)));
    if (!made.fd_ || fchmod(made.fd(), 0600) != 0) return fail_errno("cannot make memory for the ledger");
    // Allocated first: a write to a page without memory would raise SIGBUS.
    if (int failed = posix_fallocate(made.fd(), 0, kHeadBytes); failed != 0) {
        return fail(failed, "no memory for the ledger: {}", strerror(failed));
    }
    TRY(made.map(kHeadBytes));
    made.head().magic = kMagic;
    return made;
}

Status KeptMemory::check_format(int fd) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) return fail_errno("fstat of the ledger");
    uint64_t magic = 0;
    if (!S_ISREG(status.st_mode) || ::pread(fd, &magic, sizeof magic, 0) != sizeof magic) magic = 0;
    const bool is_read = magic == kMagic || magic == kFormerMagic;
    if (!is_read && (magic & kFormatMask) == (kMagic & kFormatMask)) {
        return fail(EPROTO,
                    "its ledger was left by {} gshmd, whose format this one does not read: start that version to take "
                    "it up, and `gshm snapshot` to carry it over; or `gshmd --discard` gives it up",
                    magic < kMagic ? "an older" : "a newer");
    }
    if (!is_read || static_cast<uint64_t>(status.st_size) < kHeadBytes) {
        return fail(EUCLEAN, "the keeper has something else for the ledger");
    }
    return {};
}

Result<KeptMemory> KeptMemory::adopt(UniqueFd fd) {
    TRY(check_format(fd.get()));
    KeptMemory made(std::move(fd));
    struct stat status = {};
    if (fstat(made.fd(), &status) != 0) return fail_errno("fstat of the ledger");
    TRY(made.map(static_cast<uint64_t>(status.st_size)));
    return made;
}

uint64_t KeptMemory::device_sum(const DeviceInfo& device) {
    RowSum sum;
    sum.add(device.uuid.empty() ? device.name : device.uuid);
    return sum.value();
}

Status KeptMemory::map(uint64_t used_bytes) {
    memory_ = TRY(Mapping::create(fd_.get(), kMappedBytes, true));
    journal_ =
        std::make_unique<Journal>(std::span(memory_.data(), memory_.size()).subspan(kJournalOffset, kJournalBytes));
    ledger_ = std::make_unique<Ledger>(std::span(memory_.data(), memory_.size()).subspan(kHeadBytes),
                                       used_bytes - kHeadBytes, [fd = fd_.get()](uint64_t bytes) -> Status {
                                           int failed = posix_fallocate(fd, 0, static_cast<off_t>(kHeadBytes + bytes));
                                           if (failed != 0)
                                               return fail(failed, "no memory to note a lease: {}", strerror(failed));
                                           return {};
                                       });
    return {};
}

}  // namespace gshm::core

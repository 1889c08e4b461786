// gshmd's own memory that outlives it: the ledger, the catalog's journal, and the sum of the catalog's rows. It is a
// memfd whose descriptor the keeper holds. It has no path that a tool could change, so the files in the runtime folder
// are checked against it.
#pragma once

#include <memory>

#include "base/fd.h"
#include "base/mapping.h"
#include "catalog/catalog.h"
#include "catalog/journal.h"
#include "store/ledger.h"

namespace gshm::core {

class KeptMemory {
public:
    static Result<KeptMemory> create();
    // The memory of an earlier daemon. EUCLEAN: not such memory. EPROTO: another format.
    static Result<KeptMemory> adopt(UniqueFd fd);
    // The errors of adopt(), while the earlier daemon may still run.
    static Status check_format(int fd);

    int fd() const { return fd_.get(); }
    CatalogSum& catalog_sum() { return head().catalog_sum; }
    Journal& journal() const { return *journal_; }
    Ledger& ledger() const { return *ledger_; }

    // From now on no earlier version takes it up. Called when all of it has been read, before the first change.
    void use_newest_format() { head().magic = kMagic; }

    // The first start is complete. Before that there are no objects to lose.
    bool is_ready() const { return head().ready != 0; }
    void set_ready() { head().ready = 1; }

    // The progress of a salvage. An interrupted salvage must be repeated: other starts are refused. `filled`: the new
    // catalog is complete; the journal still has rows of the damaged one.
    enum class Salvage : uint32_t { none = 0, moving = 1, filling = 2, filled = 3 };
    Salvage salvage() const { return static_cast<Salvage>(head().salvage.load()); }
    void set_salvage(Salvage salvage) { head().salvage = static_cast<uint32_t>(salvage); }

    // The identifier of a device in the ledger.
    static uint64_t device_sum(const DeviceInfo& device);

private:
    // "gskeepe" and the digit of the format: 2 had no journal; in 3 host files had no names, and the keeper had their
    // descriptors.
    static constexpr uint64_t kMagic = 0x3465'7065'656b'7367;
    static constexpr uint64_t kFormerMagic = 0x3365'7065'656b'7367;  // also read
    struct Head {
        uint64_t magic;
        CatalogSum catalog_sum;
        std::atomic<uint32_t> salvage;
        std::atomic<uint32_t> ready;
    };
    explicit KeptMemory(UniqueFd fd) : fd_(std::move(fd)) {}
    Status map(uint64_t used_bytes);
    Head& head() const { return *reinterpret_cast<Head*>(memory_.data()); }

    UniqueFd fd_;
    Mapping memory_;
    std::unique_ptr<Journal> journal_;
    std::unique_ptr<Ledger> ledger_;
};

}  // namespace gshm::core

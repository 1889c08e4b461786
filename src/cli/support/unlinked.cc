#include "cli/support/unlinked.h"

#include <cerrno>

namespace gshm::cli {

std::vector<UnlinkedEntry> list_unlinked(Context& context) {
    gshm_listing* handle = nullptr;
    const int status = gshm_list_unlinked(context.client(), &handle);
    if (status == -EOPNOTSUPP) return {};
    check(status, "");
    const Listing listing(handle);
    std::vector<UnlinkedEntry> entries;
    for (size_t i = 0; i < gshm_listing_count(handle); ++i) {
        UnlinkedEntry entry{gshm_listing_name(handle, i), sized<gshm_stat_info>(), {}};
        check(gshm_listing_stat(handle, i, &entry.info), entry.name);
        size_t count = 0;
        check(gshm_listing_holders(handle, i, nullptr, 0, &count), entry.name);
        entry.holders.resize(count, sized<gshm_holder>());
        check(gshm_listing_holders(handle, i, entry.holders.data(), count, &count), entry.name);
        entries.push_back(std::move(entry));
    }
    return entries;
}

}  // namespace gshm::cli

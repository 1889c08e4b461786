#include <gtest/gtest.h>

#include "client/object.h"

namespace gshm::core::client {
namespace {

// A recursive list of many directories used to copy all entries for each of them.
TEST(ListingTest, ItsMemoryGrowsSeldomWithManyDirectories) {
    gshm_listing listing;
    size_t growths = 0;
    for (int directory = 0; directory < 10'000; ++directory) {
        const size_t before = listing.entries.capacity();
        listing.expect(10);
        EXPECT_GE(listing.entries.capacity(), listing.entries.size() + 10);
        growths += listing.entries.capacity() != before;
        for (int i = 0; i < 10; ++i) listing.add("directory/", "entry", {});
    }
    EXPECT_LT(growths, 50u);
}

}  // namespace
}  // namespace gshm::core::client

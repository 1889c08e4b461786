// A batch is sent as several requests at once. Each of them allocated the slab that all of them needed, and the slabs
// that stayed empty were never freed.
#include <gtest/gtest.h>

#include "integration/library_fixture.h"

namespace gshm::core::test {
namespace {

class UnusedSlabs : public LibraryTest {};

TEST_F(UnusedSlabs, ABatchAllocatesWhatItNeedsAndNoMore) {
    start_all();
    for (const char* where : {"host", "cuda:0"}) {
        constexpr size_t kCount = 2000;
        std::vector<std::string> names;
        std::vector<gshm_create_spec> specs;
        for (size_t i = 0; i < kCount; ++i) names.push_back("s/" + std::to_string(i));
        for (const auto& name : names) specs.push_back(spec(name.c_str(), 64 << 10, where));
        std::vector<gshm_object*> objects(kCount);
        std::vector<int> status(kCount);
        ASSERT_EQ(gshm_create_batch(client_.get(), specs.data(), kCount, objects.data(), status.data()), 0)
            << gshm_last_error();
        auto used = device(client_.get(), where);
        EXPECT_EQ(used.object_bytes, kCount * (64 << 10));
        EXPECT_LE(used.used_bytes, used.object_bytes + (uint64_t{64} << 20)) << "at most one slab that is not full";
        gshm_close_batch(objects.data(), kCount);
        for (const auto& name : names) ASSERT_EQ(gshm_unlink(client_.get(), name.c_str()), 0);
        EXPECT_TRUE(eventually([&] { return device(client_.get(), where).used_bytes <= uint64_t{64} << 20; }))
            << "all but one empty slab is freed";
    }
}

}  // namespace
}  // namespace gshm::core::test

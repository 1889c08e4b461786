// Critical sizes and alignments: at the edges of sectors, pages, pieces and chunks.
#include <unistd.h>

#include "rig.h"

namespace gshm::core::io::test {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGuard = 8 * kKiB;
constexpr char kGuardByte = 'g';

const std::vector<uint64_t> kSizes = {0,
                                      1,
                                      511,
                                      512,
                                      513,
                                      4095,
                                      4096,
                                      4097,
                                      8191,
                                      8192,
                                      8193,
                                      64 * kKiB - 1,
                                      64 * kKiB,
                                      64 * kKiB + 1,
                                      256 * kKiB,
                                      256 * kKiB + 1,
                                      kMiB - 1,
                                      kMiB,
                                      kMiB + 1,
                                      2 * kMiB - 1,
                                      2 * kMiB,
                                      2 * kMiB + 1,
                                      8 * kMiB - 1,
                                      8 * kMiB,
                                      8 * kMiB + 1,
                                      19 * kMiB + 777};
const std::vector<uint64_t> kOffsets = {0, 1, 511, 512, 513, 4095, 4096, 4097, 12345};
const std::vector<uint64_t> kMemoryOffsets = {0, 1, 512, 4095, 4096};

// A short description of the difference.
std::string difference(const std::string& got, const std::string& expected) {
    if (got.size() != expected.size()) return "sizes differ";
    if (got == expected) return {};
    const auto at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    return fmt::format("first at byte {} of {}", at, got.size());
}

// Large sizes at few offsets, small sizes at all.
bool is_worth_it(uint64_t size, size_t offset, size_t memory_offset) {
    if (size <= 64 * kKiB + 1) return true;
    if (size <= 2 * kMiB + 1) return offset == memory_offset || memory_offset == 1;
    return (offset == 0 && memory_offset < 2) || (offset == 3 && memory_offset == 2) ||
           (offset == 8 && memory_offset == 4);
}

class Sizes : public IoSuite {};

TEST_P(Sizes, Read) {
    const uint64_t most = kSizes.back();
    const std::string content = pattern(most + 32 * kKiB, 1);
    TestFile file(content);
    Memory memory(device(), most + 3 * kGuard);
    for (bool cold : {false, true}) {
        for (uint64_t size : kSizes) {
            for (size_t i = 0; i < kOffsets.size(); ++i) {
                for (size_t j = 0; j < kMemoryOffsets.size(); ++j) {
                    if (!is_worth_it(size, i, j)) continue;
                    if (cold && size >= 4096) {
                        file.evict();
                        file.open_again();
                    }
                    const uint64_t at = kGuard + kMemoryOffsets[j];
                    memory.put(0, std::string(at + size + kGuard, kGuardByte));
                    auto transfer = read(file, kOffsets[i], memory, at, size);
                    auto got = source_->run(transfer);
                    ASSERT_TRUE(got) << got.error().message;
                    ASSERT_EQ(*got, size);
                    const std::string expected = std::string(at, kGuardByte) + content.substr(kOffsets[i], size) +
                                                 std::string(kGuard, kGuardByte);
                    ASSERT_EQ(difference(memory.get(0, at + size + kGuard), expected), "")
                        << "size " << size << " offset " << kOffsets[i] << " memory " << at << " cold " << cold;
                }
            }
        }
    }
}

TEST_P(Sizes, Write) {
    const uint64_t most = kSizes.back();
    const std::string source = pattern(most + 3 * kGuard, 2);
    Memory memory(device(), source.size());
    memory.put(0, source);
    for (bool into_file : {false, true}) {  // beyond the end of the file, or in its middle
        for (uint64_t size : kSizes) {
            std::string before(into_file ? size + 4 * kGuard : 0, kGuardByte);
            TestFile file(before);
            for (size_t i = 0; i < kOffsets.size(); ++i) {
                for (size_t j = 0; j < kMemoryOffsets.size(); ++j) {
                    if (!is_worth_it(size, i, j) || (size > 4097 && (i + j) % 2 != 0 && i != 0)) continue;
                    const uint64_t offset = kOffsets[i];
                    if (into_file) {
                        ASSERT_EQ(pwrite(file.fd(), before.data(), before.size(), 0), ssize_t(before.size()));
                        if (size >= 4096) file.evict();
                    } else {
                        ASSERT_EQ(ftruncate(file.fd(), 0), 0);
                    }
                    file.open_again();
                    const uint64_t at = kGuard + kMemoryOffsets[j];
                    auto transfer = write(file, offset, memory, at, size);
                    auto got = source_->run(transfer);
                    ASSERT_TRUE(got) << got.error().message;
                    ASSERT_EQ(*got, size);
                    std::string expected = before;
                    if (size > 0 && !into_file) expected.resize(offset + size);
                    expected.replace(std::min<size_t>(offset, expected.size()), size, source, at, size);
                    ASSERT_EQ(difference(file.content(), expected), "")
                        << "size " << size << " offset " << offset << " memory " << at << " into " << into_file;
                }
            }
        }
    }
}

TEST_P(Sizes, WaysTaken) {
    const std::string content = pattern(4 * kMiB, 3);
    TestFile file(content);
    Memory memory(device(), content.size());
    auto cached = read(file, 0, memory, 0, content.size());
    ASSERT_TRUE(source_->run(cached));
    const uint32_t staged = GetParam().cuda ? uint32_t{kPathStaged} : 0;
    const uint32_t threads = GetParam().uring ? 0 : uint32_t{kPathThreads};
    EXPECT_EQ(cached.path, kPathCached | staged | threads);
    if (file.file().direct_fd() < 0) GTEST_SKIP() << "the folder for temporary files has no O_DIRECT";
    file.evict();
    auto cold = read(file, 0, memory, 0, content.size());
    ASSERT_TRUE(source_->run(cold));
    EXPECT_EQ(cold.path, kPathDirect | staged | threads);
    EXPECT_EQ(difference(memory.get(0, content.size()), content), "");
}

INSTANTIATE_TEST_SUITE_P(All, Sizes, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace gshm::core::io::test

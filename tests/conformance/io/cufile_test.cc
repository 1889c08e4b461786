// cuFile, through a test double: used only if it is faster. Each case in a separate process, since the choice is made
// once per process.
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

#include "faulty_queue.h"
#include "io/cufile.h"
#include "rig.h"
#include "support/this_build.h"

namespace gshm::core::io::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kTrialBytes = 16 * kMiB;
constexpr uint64_t kBytes = 48 * kMiB + 12345;

const std::string kFakeCuFile = core::test::build_path("tests/fakecufile/libcufile.so.0");

struct Setting {
    const char* library = kFakeCuFile.c_str();
    const char* fails = nullptr;
    const char* cufile_delay_us = nullptr;
    unsigned staging_delay_us = 0;
};

// Reads and writes one file twice. Returns an error text, and in `ways` the paths of the second time.
class Rig {
public:
    explicit Rig(const Setting& setting) {
        if (setting.fails != nullptr) setenv("FAKECUFILE_FAIL", setting.fails, 1);
        if (setting.cufile_delay_us != nullptr) setenv("FAKECUFILE_DELAY_US", setting.cufile_delay_us, 1);
        setenv("FAKECUDA_COPY_DELAY_US", "0", 1);
        (void)cuda_device();
        if (setting.library != nullptr && dlopen(setting.library, RTLD_NOW | RTLD_GLOBAL) == nullptr) _exit(90);
        CuFile::get().wait_until_known();
        Engine::Options options;
        options.cufile_trial_bytes = kTrialBytes;
        auto make_queue = [=]() -> Result<std::unique_ptr<Queue>> {
            return std::make_unique<FaultyQueue>(TRY(make_thread_queue(16)), [=](const Request&, uint64_t) {
                if (setting.staging_delay_us != 0) usleep(setting.staging_delay_us);
                return std::optional<int32_t>();
            });
        };
        engine_ = *EngineCore::create(*Staging::create(cuda_device(), 64 * kMiB), options, make_queue);
    }

    // The exit status of the process: 0 if the bytes are right and the last transfer used the expected path.
    int run(Direction way, bool by_cufile, bool cold = true) {
        TestSource source(*engine_);
        const std::string content = pattern(kBytes, 1);
        TestFile file(way == Direction::read ? content : std::string());
        Memory memory(cuda_device(), kBytes);
        if (way == Direction::write) memory.put(0, content);
        uint32_t path = 0;
        for (int round = 0; round < 2; ++round) {
            if (way == Direction::read) memory.clear('g');
            if (cold) file.evict();
            file.open_again();
            TestTransfer transfer(way, file.file(), 0, memory.address(), memory.copier(), kBytes);
            auto got = source.run(transfer);
            if (!got || *got != kBytes) return 1;
            path = transfer.path;
            if (way == Direction::read && memory.get(0, kBytes) != content) return 2;
            if (way == Direction::write && file.content() != content) return 3;
        }
        return ((path & kPathCuFile) != 0) == by_cufile ? 0 : 4;
    }

private:
    std::unique_ptr<Engine> engine_;
};

#define EXPECT_WAY(setting, ...)                                                             \
    do {                                                                                     \
        GTEST_FLAG_SET(death_test_style, "threadsafe");                                      \
        EXPECT_EXIT(_exit(Rig(setting).run(__VA_ARGS__)), ::testing::ExitedWithCode(0), ""); \
    } while (false)

TEST(CuFileDeathTest, FasterIsTaken) {
    EXPECT_WAY((Setting{.staging_delay_us = 100'000}), Direction::read, true);
    EXPECT_WAY((Setting{.staging_delay_us = 100'000}), Direction::write, true);
}

TEST(CuFileDeathTest, SlowerIsNot) {
    EXPECT_WAY((Setting{.cufile_delay_us = "2000000"}), Direction::read, false);
}

TEST(CuFileDeathTest, NotForWhatIsInThePageCache) {
    EXPECT_WAY((Setting{.staging_delay_us = 10'000}), Direction::read, false, false);
}

TEST(CuFileDeathTest, AbsentOrFailing) {
    EXPECT_WAY((Setting{.library = nullptr}), Direction::read, false);
    EXPECT_WAY((Setting{.fails = "open"}), Direction::read, false);
    EXPECT_WAY((Setting{.fails = "register"}), Direction::read, false);
    EXPECT_WAY((Setting{.fails = "read", .staging_delay_us = 10'000}), Direction::read, false);
    EXPECT_WAY((Setting{.fails = "read", .staging_delay_us = 10'000}), Direction::write, false);
    EXPECT_WAY((Setting{.fails = "short"}), Direction::read, false);
}

}  // namespace
}  // namespace gshm::core::io::test

// CUDABufferMirror: vineyard's view of a buffer for the CPU.
#include <filesystem>

#include "vineyard_fixture.h"

namespace gshm::core::test {
namespace {

// Rules for the fake driver of this process, which it reads whenever the file changes.
const std::string fault_file = [] {
    auto path = std::filesystem::temp_directory_path() / ("gshm-vineyard-" + std::to_string(getpid()) + ".faults");
    setenv("FAKECUDA_CONTROL", path.c_str(), 1);
    return path.string();
}();

class VineyardMirrors : public VineyardTest {
protected:
    void SetUp() override {
        VineyardTest::SetUp();
        ASSERT_OK(client_.Connect(dir()));
    }
    ~VineyardMirrors() override { std::remove(fault_file.c_str()); }
    static void set_faults(const std::string& rules) {
        std::ofstream(fault_file + ".new") << rules;
        std::filesystem::rename(fault_file + ".new", fault_file);
    }
    vy::Client client_;
};
GSHM_VINEYARD_DEVICES(VineyardMirrors);

TEST_P(VineyardMirrors, GoBothWays) {
    for (size_t size : {size_t{12}, size_t{4096}, (size_t{2} << 20) + 17}) {
        Made made;
        ASSERT_OK(client_.CreateGPUBuffer(size, made.id, made.payload, made.buffer));
        {
            vy::CUDABufferMirror mirror(*made.buffer, false);
            EXPECT_EQ(mirror.size(), static_cast<int64_t>(size));
            memcpy(mirror.mutable_data(), "hello world", 12);
        }
        {
            vy::CUDABufferMirror mirror(*made.buffer, true);
            EXPECT_STREQ(reinterpret_cast<const char*>(mirror.data()), "hello world");
            EXPECT_EQ(mirror.mutable_data(), mirror.data());
        }
        ASSERT_OK(client_.Seal(made.id));
        auto got = get(client_, made.id);
        vy::CUDABufferMirror mirror(*got, true);
        EXPECT_EQ(mirror.mutable_data(), nullptr);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(mirror.data()), size),
                  std::string("hello world", 11) + std::string(size - 11, '\0'));
        EXPECT_OK(mirror.flush()) << "there is nothing to write";
    }
}

TEST_P(VineyardMirrors, WithoutInitializingChangeNothingElse) {
    auto secret = make(client_, 4096, 7);
    { vy::CUDABufferMirror mirror(*secret.buffer, true); }
    Made made;
    ASSERT_OK(client_.CreateGPUBuffer(4096, made.id, made.payload, made.buffer));
    for (int round = 0; round < 2; ++round) {
        vy::CUDABufferMirror mirror(*made.buffer, false);
        memset(mirror.mutable_data() + 100 * round, 'a' + round, 10);
    }
    std::string expected(4096, '\0');
    expected.replace(0, 10, 10, 'a');
    expected.replace(100, 10, 10, 'b');
    EXPECT_TRUE(content(*made.buffer) == expected) << "neither bytes of another mirror nor garbage";
}

TEST_P(VineyardMirrors, OfImmutableBuffersMustBeInitialized) {
    auto made = make(client_, 100);
    auto got = get(client_, made.id, true);
    EXPECT_THROW(vy::CUDABufferMirror mirror(*got), std::runtime_error);
    ASSERT_OK(client_.Seal(made.id));
    try {
        vy::CUDABufferMirror mirror(*made.buffer, false);
        ADD_FAILURE() << "it is sealed";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find(vy::ObjectIDToString(made.id)), std::string::npos) << error.what();
    }
    vy::CUDABufferMirror mirror(*made.buffer, true);
    EXPECT_EQ(mirror.mutable_data(), nullptr);
}

TEST_P(VineyardMirrors, AreWrittenByAFlushAndNotUnlessAskedFor) {
    auto made = make(client_, 1000, 1);
    auto reader = get(client_, made.id, true);
    {
        vy::CUDABufferMirror mirror(*made.buffer, true);
        memset(mirror.mutable_data(), 5, 1000);
        EXPECT_OK(mirror.flush());
        EXPECT_TRUE(content(*reader) == std::string(1000, 5));
        EXPECT_OK(mirror.flush());
        memset(mirror.mutable_data(), 6, 1000);
    }
    EXPECT_TRUE(content(*reader) == std::string(1000, 6));
    if (is_host()) return;  // there a mirror is the memory itself
    {
        vy::CUDABufferMirror looked_at(*made.buffer, true);
        write(*made.buffer, pattern(1000, 9));
    }
    EXPECT_TRUE(content(*reader) == pattern(1000, 9)) << "who has only looked writes nothing back";
}

TEST_P(VineyardMirrors, OutliveBufferAndClient) {
    auto made = make(client_, 1000, 1);
    auto reader = get(client_, made.id, true);
    auto mirror = std::make_unique<vy::CUDABufferMirror>(*made.buffer);
    memset(mirror->mutable_data(), 5, 1000);
    made.buffer.reset();
    client_.Disconnect();
    mirror.reset();
    EXPECT_TRUE(content(*reader) == std::string(1000, 5));
}

TEST_P(VineyardMirrors, OfABufferThatIsSealedMeanwhileAreNotWritten) {
    auto made = make(client_, 1000, 1);
    testing::internal::CaptureStderr();
    {
        vy::CUDABufferMirror mirror(*made.buffer, true);
        uint8_t* bytes = mirror.mutable_data();
        ASSERT_NE(bytes, nullptr);
        ASSERT_OK(client_.Seal(made.id));
        EXPECT_EQ(mirror.mutable_data(), nullptr);
        if (!is_host()) bytes[0] = 99;
        const auto status = mirror.flush();
        EXPECT_TRUE(status.IsObjectSealed()) << status.ToString();
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(vy::ObjectIDToString(made.id)), std::string::npos) << said;
    EXPECT_NE(said.find("are lost"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_TRUE(content(*made.buffer) == pattern(1000, 1));
}

TEST_P(VineyardMirrors, ThatCannotBeCopiedSaySo) {
    if (is_host()) GTEST_SKIP() << "nothing is copied there";
    auto made = make(client_, 1000, 1);
    testing::internal::CaptureStderr();
    {
        vy::CUDABufferMirror mirror(*made.buffer, true);
        memset(mirror.mutable_data(), 5, 1000);
        set_faults("cuMemcpyHtoDAsync_v2:*:1");
        const auto status = mirror.flush();
        EXPECT_FALSE(status.ok());
        EXPECT_NE(status.ToString(), "");
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("are lost"), std::string::npos) << said;
    set_faults("cuMemcpyDtoHAsync_v2:*:1");
    EXPECT_THROW(vy::CUDABufferMirror(*made.buffer, true), std::runtime_error);
    set_faults("");
    EXPECT_TRUE(content(*made.buffer) == pattern(1000, 1));
}

}  // namespace
}  // namespace gshm::core::test

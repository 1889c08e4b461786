// Shared parts of the engine's tests: memory of each kind between guard bytes, files, a source with a doorbell, and the
// suite that runs over every queue and every kind of memory.
#pragma once

#include <condition_variable>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/device.h"
#include "io/engine_core.h"
#include "support/pattern.h"

namespace gshm::core::io::test {

using gshm::core::test::pattern;

// Loads the fake driver first. Both devices live until the process ends.
Device& host_device();
Device& cuda_device();

// Memory of a device that a test can set and read without an engine.
class Memory {
public:
    Memory(Device& device, uint64_t size);
    uint64_t address() const { return extent_->address(); }
    Copier* copier() const { return extent_->copier(); }
    void put(uint64_t offset, const std::string& bytes);
    std::string get(uint64_t offset, uint64_t bytes) const;
    // Fills all of it with this byte.
    void clear(char value);

private:
    std::unique_ptr<Extent> extent_;
};

// An unnamed file, on a disk that supports O_DIRECT if the machine has one.
class TestFile {
public:
    explicit TestFile(const std::string& content = {}, int flags = O_RDWR);
    int fd() const { return fd_.get(); }
    File& file() const { return *file_; }
    uint64_t size() const;
    std::string content() const;
    // Removes it from the page cache.
    void evict() const;
    // For use after a change from outside.
    void open_again();

private:
    UniqueFd fd_;
    std::shared_ptr<File> file_;
};

class TestSource;

struct TestTransfer : Transfer {
    TestTransfer(Direction way, File& from, uint64_t offset, uint64_t to, Copier* with, uint64_t size) {
        direction = way;
        file = &from;
        file_offset = offset;
        address = to;
        copier = with;
        bytes = size;
    }
    void done(Result<uint64_t> bytes) override;

    TestSource* source = nullptr;
    bool is_done = false;
    Result<uint64_t> result = 0;
    std::function<void()> when_done;  // runs in the engine's thread
};

// Starts the given transfers, through a real eventfd.
class TestSource final : public Source {
public:
    explicit TestSource(Engine& engine);
    ~TestSource() override;

    void put(TestTransfer& transfer);
    void wait(TestTransfer& transfer);
    Result<uint64_t> run(TestTransfer& transfer);
    // Removes the source from the engine before the destructor does.
    void leave();
    unsigned polls() const { return polls_; }
    size_t not_taken() const { return waiting_.size(); }  // after leave()

    int doorbell() const override { return bell_.get(); }
    bool poll() override;
    void sleep(bool asleep) override;

private:
    friend struct TestTransfer;
    Engine& engine_;
    UniqueFd bell_;
    bool added_ = true;
    std::mutex mutex_;
    std::condition_variable done_;
    std::vector<TestTransfer*> waiting_;
    bool asleep_ = false;
    std::atomic<unsigned> polls_{0};
};

struct Case {
    std::string name;
    bool uring;
    bool cuda;
};
inline void PrintTo(const Case& shown, std::ostream* out) {
    *out << shown.name;
}

inline std::vector<Case> all_cases() {
    return {{"uring_host", true, false},
            {"uring_cuda", true, true},
            {"threads_host", false, false},
            {"threads_cuda", false, true}};
}
inline std::vector<Case> host_cases() {
    return {{"uring_host", true, false}, {"threads_host", false, false}};
}
inline std::vector<Case> cuda_cases() {
    return {{"uring_cuda", true, true}, {"threads_cuda", false, true}};
}
inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
    return info.param.name;
}

class IoSuite : public ::testing::TestWithParam<Case> {
protected:
    void SetUp() override;
    Device& device() const { return GetParam().cuda ? cuda_device() : host_device(); }
    Result<std::unique_ptr<Engine>> make_engine(Engine::Options options = {},
                                                std::shared_ptr<Staging> staging = nullptr);
    // With a queue of the test in front of the real one.
    using Wrap = std::function<std::unique_ptr<Queue>(std::unique_ptr<Queue>)>;
    Result<std::unique_ptr<Engine>> make_wrapped(Engine::Options options, Wrap wrap);
    TestTransfer read(TestFile& file, uint64_t offset, Memory& memory, uint64_t at, uint64_t bytes) const {
        return {Direction::read, file.file(), offset, memory.address() + at, memory.copier(), bytes};
    }
    TestTransfer write(TestFile& file, uint64_t offset, Memory& memory, uint64_t at, uint64_t bytes) const {
        return {Direction::write, file.file(), offset, memory.address() + at, memory.copier(), bytes};
    }

    static constexpr size_t kStagingBytes = size_t{64} << 20;
    std::shared_ptr<Staging> staging_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<TestSource> source_;
};

}  // namespace gshm::core::io::test

// A tier's folder on a disk whose calls a test can make fail.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "memory/tier_folder.h"
#include "support/memory_device.h"
#include "support/pattern.h"

namespace gshm::core::test {

// Fails, or ends the process at, the calls [first, first + count).
class FaultyDisk final : public TierDisk {
public:
    enum class Kind { fail, end };
    void arm(Kind kind, uint64_t first, uint64_t count, int error) {
        kind_ = kind;
        first_ = first;
        count_ = count;
        error_ = error;
        seen_ = 0;
        hits_ = 0;
    }
    void disarm() { first_ = UINT64_MAX; }
    uint64_t seen() const { return seen_; }
    uint64_t hits() const { return hits_; }
    // Called with each call.
    std::function<void(std::string_view call)> on_call;

    int open(int folder, const char* name, int flags) override {
        return fails("open") ? -1 : TierDisk::open(folder, name, flags);
    }
    ssize_t read(int file, std::span<std::byte> into, uint64_t at) override {
        return fails("read") ? -1 : TierDisk::read(file, into, at);
    }
    ssize_t write(int file, std::span<const std::byte> from, uint64_t at) override {
        return fails("write") ? -1 : TierDisk::write(file, from, at);
    }
    int allocate(int file, uint64_t bytes) override { return fails("allocate") ? -1 : TierDisk::allocate(file, bytes); }
    int resize(int file, uint64_t bytes) override { return fails("resize") ? -1 : TierDisk::resize(file, bytes); }
    int sync(int file) override { return fails("sync") ? -1 : TierDisk::sync(file); }
    int rename(int folder, const char* from, const char* to) override {
        return fails("rename") ? -1 : TierDisk::rename(folder, from, to);
    }
    int remove(int folder, const char* name) override { return fails("remove") ? -1 : TierDisk::remove(folder, name); }

private:
    bool fails(std::string_view call) {
        const uint64_t number = ++seen_;
        if (on_call) on_call(call);
        if (number < first_ || number - first_ >= count_) return false;
        if (kind_ == Kind::end) _exit(9);
        ++hits_;
        errno = error_;
        return true;
    }

    std::atomic<uint64_t> seen_ = 0;
    std::atomic<uint64_t> hits_ = 0;
    Kind kind_ = Kind::fail;
    uint64_t first_ = UINT64_MAX;
    uint64_t count_ = 0;
    int error_ = 0;
};

class TierTest : public ::testing::Test {
protected:
    static constexpr uint64_t kInstance = 77;
    static constexpr uint64_t kChunk = kSnapshotChunkBytes;

    void SetUp() override {
        std::string made = ::testing::TempDir() + "/gshm-tier-XXXXXX";
        ASSERT_NE(::mkdtemp(made.data()), nullptr);
        root_ = made;
        spec_.path = root_ + "/tier";
    }
    void TearDown() override {
        folder_.reset();
        std::filesystem::remove_all(root_);
    }

    // Opens it again, as a later gshmd.
    void open(uint64_t instance = kInstance) {
        folder_.reset();
        auto opened = TierFolder::open(spec_, instance, {}, disk_);
        ASSERT_TRUE(opened) << opened.error().message;
        folder_ = std::move(*opened);
    }
    // The error of opening it; 0: it opens.
    int open_error(std::string* ret_said = nullptr) {
        auto opened = TierFolder::open(spec_, kInstance);
        if (opened) return 0;
        if (ret_said != nullptr) *ret_said = opened.error().message;
        return opened.error().code;
    }

    std::unique_ptr<Extent> extent(uint64_t bytes, uint64_t seed, uint64_t before = 0) {
        auto made = device_.allocate(before + bytes + 1, {}).value();
        const std::string text = pattern(bytes, seed);
        EXPECT_TRUE(made->copy_in(before, std::as_bytes(std::span(text.data(), text.size()))));
        return made;
    }
    Result<uint64_t> write(uint64_t bytes, uint64_t seed) { return folder_->write(*extent(bytes, seed), 0, bytes); }
    // "": it comes back right. Else the error.
    std::string read_back(uint64_t number, uint64_t bytes, uint64_t seed) {
        auto to = device_.allocate(bytes + 1, {}).value();
        if (auto read = folder_->read(number, *to, 0, bytes); !read)
            return std::to_string(read.error().code) + ": " + read.error().message;
        std::string text(bytes, '\0');
        EXPECT_TRUE(to->copy_out(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
        return text == pattern(bytes, seed) ? "" : "other bytes";
    }
    std::string file(uint64_t number) const { return spec_.path + "/" + tier_file_name(number); }
    // Of objects, complete or not, on the disk.
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(spec_.path)) {
            const std::string name = entry.path().filename();
            if (name != kTierMarkerName && name != kTierFactsName) names.push_back(name);
        }
        return names;
    }
    uint64_t bytes_on_disk() const {
        uint64_t bytes = 0;
        for (const auto& name : files()) bytes += std::filesystem::file_size(spec_.path + "/" + name);
        return bytes;
    }

    std::string root_;
    TierFolderSpec spec_;
    FaultyDisk disk_;
    MemoryDevice device_{"memory", uint64_t{1} << 32};
    std::unique_ptr<TierFolder> folder_;
};

}  // namespace gshm::core::test

// Files into GPU memory and back: through the daemon's ring, and into memory that the process owns.
#include <fcntl.h>
#include <fstream>

#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuFiles : public GpuTest {
protected:
    // In memory or on a disk: some paths of the engine apply to only one of them.
    int make_file(const std::string& folder, const std::vector<std::byte>& bytes) {
        std::string path = folder + "/gshm-gpu-XXXXXX";
        const int fd = mkostemp(path.data(), O_CLOEXEC);
        EXPECT_GE(fd, 0) << path;
        ::unlink(path.c_str());
        for (size_t done = 0; done < bytes.size();) {
            const ssize_t put = ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
            if (put <= 0) break;
            done += static_cast<size_t>(put);
        }
        return fd;
    }
    static std::vector<std::byte> part(const std::vector<std::byte>& bytes, size_t offset, size_t count) {
        return {bytes.begin() + static_cast<ptrdiff_t>(offset), bytes.begin() + static_cast<ptrdiff_t>(offset + count)};
    }
    std::vector<std::byte> contents(gshm_object* object, uint64_t offset, size_t count) {
        std::vector<std::byte> seen(count);
        EXPECT_EQ(gshm_copy_out(object, offset, seen.data(), count), 0) << gshm_last_error();
        return seen;
    }
    void there_and_back(gshm_object* object, const std::string& folder, const char* what) {
        const auto bytes = pattern(100 * kMiB + 12345, 9);
        const int fd = make_file(folder, bytes);
        for (bool cold : {true, false}) {
            if (cold && (fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)) continue;
            for (uint64_t shift : {uint64_t{0}, uint64_t{1}, uint64_t{4097}}) {
                gshm_transfer_info info = {sizeof info, 0, 0, 0};
                const uint64_t length = bytes.size() - 2 * shift;
                ASSERT_EQ(gshm_read_file(object, shift, fd, 2 * shift, length, nullptr, &info), 0) << gshm_last_error();
                ASSERT_EQ(contents(object, shift, length), part(bytes, 2 * shift, length)) << what << " " << shift;
                if (shift == 0) {
                    print_fact(where() + ": " + what + " from " + folder + (cold ? ", cold" : ", warm") + ": ways " +
                               std::to_string(info.path) + ", " +
                               std::to_string(static_cast<double>(info.bytes) / static_cast<double>(info.duration_ns)) +
                               " GB/s");
                }
                const int out = make_file(folder, {});
                ASSERT_EQ(gshm_write_file(object, shift, out, shift, length, nullptr, nullptr), 0) << gshm_last_error();
                std::vector<std::byte> seen(length);
                ASSERT_EQ(::pread(out, seen.data(), length, static_cast<off_t>(shift)), static_cast<ssize_t>(length));
                ASSERT_EQ(seen, part(bytes, 2 * shift, length)) << what << " " << shift;
                ::close(out);
            }
        }
        ::close(fd);
    }
};
GSHM_FOR_EACH_GPU(GpuFiles);

TEST_P(GpuFiles, ThereAndBack) {
    auto object = create("o", 101 * kMiB, GSHM_NO_MAP);
    there_and_back(object.get(), "/dev/shm", "an object");
    there_and_back(object.get(), "/tmp", "an object");
}

TEST_P(GpuFiles, MemoryOfOurOwn) {
    gshm_object* handle = nullptr;
    ASSERT_EQ(gshm_allocate(where().c_str(), 101 * kMiB, 0, &handle), 0) << gshm_last_error();
    Object object(handle);
    there_and_back(handle, "/tmp", "memory without a daemon");
    const cuda::ScopedContext current(gpu().driver(), gpu().context());
    cuda::CUdeviceptr pointer = 0;
    ASSERT_EQ(FurtherCalls::get().mem_alloc(&pointer, 102 * kMiB), cuda::kSuccess);
    ASSERT_EQ(gshm_wrap(reinterpret_cast<void*>(pointer + 777), 101 * kMiB, &handle), 0) << gshm_last_error();
    Object wrapped(handle);
    there_and_back(handle, "/tmp", "wrapped memory");
}

TEST_P(GpuFiles, HolesAreZeros) {
    auto object = create("o", 64 * kMiB, GSHM_NO_MAP);
    ASSERT_EQ(gshm_fill(object.get(), 0, 64 * kMiB, 0xee), 0);
    const int fd = make_file("/tmp", pattern(5000, 1));
    ASSERT_EQ(ftruncate(fd, 64 * kMiB), 0);
    gshm_transfer_info info = {sizeof info, 0, 0, 0};
    ASSERT_EQ(gshm_read_file(object.get(), 0, fd, 0, 64 * kMiB, nullptr, &info), 0) << gshm_last_error();
    EXPECT_NE(info.path & GSHM_PATH_HOLE, 0u);
    auto seen = contents(object.get(), 0, 64 * kMiB);
    EXPECT_EQ(part(seen, 0, 5000), pattern(5000, 1));
    EXPECT_EQ(part(seen, 5000, seen.size() - 5000), std::vector<std::byte>(seen.size() - 5000));
    ::close(fd);
}

}  // namespace
}  // namespace gshm::core::test

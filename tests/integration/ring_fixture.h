// Files, and rings that transfer them to and from objects.
#pragma once

#include <fcntl.h>
#include <map>
#include <sys/mman.h>

#include "integration/survival_fixture.h"

namespace gshm::core::test {

class RingTest : public SurvivalOn {
protected:
    struct Destroy {
        void operator()(gshm_ring* ring) const { gshm_ring_destroy(ring); }
    };
    using Ring = std::unique_ptr<gshm_ring, Destroy>;

    // A parameter such as "host shared" is a device and the kind of the rings.
    static bool is_shared() { return std::string_view(GetParam()).ends_with(" shared"); }
    static const char* where() { return std::string_view(GetParam()).starts_with("host") ? "host" : "cuda:0"; }

    Ring make_ring(uint32_t entries = 64) { return make_ring(client_.get(), entries); }
    static Ring make_ring(gshm_client* client, uint32_t entries) {
        gshm_ring_options options = GSHM_RING_OPTIONS_INIT;
        options.entries = entries;
        options.flags = is_shared() ? uint32_t{GSHM_RING_SHARED} : 0;
        gshm_ring* ring = nullptr;
        EXPECT_EQ(gshm_ring_create(client, &options, &ring), 0) << gshm_last_error();
        return Ring(ring);
    }
    // On a disk, if there is one: the folder of the tests may be a tmpfs.
    std::string file_path(const std::string& name) const { return scratch() + "/" + name; }
    int make_file(const std::string& name, const std::string& bytes, int flags = O_RDWR) {
        const int fd = ::open(file_path(name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        EXPECT_GE(fd, 0);
        EXPECT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
        ::close(fd);
        const int again = ::open(file_path(name).c_str(), flags | O_CLOEXEC);
        files_.push_back(again);
        return again;
    }
    static uint32_t add(const Ring& ring, int fd) {
        uint32_t file = 0;
        EXPECT_EQ(gshm_ring_add_file(ring.get(), fd, &file), 0) << gshm_last_error();
        return file;
    }
    static int prepare(const Ring& ring, uint32_t operation, uint32_t file, uint64_t file_offset,
                       std::vector<gshm_range> ranges, uint64_t user_data = 0) {
        const gshm_io io = {sizeof io, operation, file, 0, file_offset, ranges.data(), ranges.size(), user_data};
        return gshm_ring_prepare(ring.get(), &io);
    }
    // Submits, and takes `count` completions. Returns the results by user data.
    static std::map<uint64_t, int64_t> finish(const Ring& ring, size_t count) {
        EXPECT_GE(gshm_ring_submit(ring.get()), 0) << gshm_last_error();
        std::map<uint64_t, int64_t> results;
        while (results.size() < count) {
            gshm_completion completions[16];
            const int taken = gshm_ring_wait(ring.get(), completions, 16, 1, kPatience);
            if (taken <= 0) {
                ADD_FAILURE() << "wait: " << taken << " " << gshm_last_error();
                break;
            }
            for (int i = 0; i < taken; ++i) results[completions[i].user_data] = completions[i].result;
        }
        return results;
    }
    static int64_t one(const Ring& ring, uint32_t operation, uint32_t file, uint64_t file_offset, gshm_object* object,
                       uint64_t offset, uint64_t bytes) {
        const int prepared = prepare(ring, operation, file, file_offset, {{object, offset, bytes}});
        if (prepared != 0) return prepared;
        return finish(ring, 1)[0];
    }
    static std::string bytes_of(gshm_object* object) {
        std::string bytes(gshm_size(object), '\0');
        EXPECT_EQ(gshm_copy_out(object, 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
        return bytes;
    }
    static std::string contents(int fd) {
        std::string bytes(static_cast<size_t>(::lseek(fd, 0, SEEK_END)), '\0');
        EXPECT_EQ(::pread(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
        return bytes;
    }
    void TearDown() override {
        for (int fd : files_) ::close(fd);
    }

    std::vector<int> files_;
};

inline const auto kDevicesAndKinds = ::testing::Values("host", "cuda:0", "host shared", "cuda:0 shared");
inline std::string ring_of(const ::testing::TestParamInfo<const char*>& info) {
    const std::string_view param = info.param;
    return std::string(param.starts_with("host") ? "host" : "cuda") + (param.ends_with(" shared") ? "_shared" : "");
}

}  // namespace gshm::core::test

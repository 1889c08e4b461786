#include "mount/fsx.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "mount/recorder.h"

namespace gshm::core::test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLongest = 64 * 1024;  // of most operations
constexpr size_t kRemembered = 20;

struct Range {
    size_t offset;
    size_t size;
    size_t end() const { return offset + size; }
};

class Fsx {
public:
    Fsx(const std::string& path, uint64_t seed, FsxOptions options) : path_(path), options_(options), random_(seed) {}
    ~Fsx() {
        if (fd_ >= 0) ::close(fd_);
        ::unlink(path_.c_str());
    }

    std::string run(int operations) {
        fd_ = ::open(path_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
        if (fd_ < 0) return "cannot make the file: " + errno_name(errno);
        for (done_ = 0; done_ < operations && failure_.empty(); ++done_) {
            step();
            check_size();
            if (done_ % options_.whole_check_every == 0) check_bytes({0, model_.size()}, "the whole file");
        }
        if (failure_.empty()) reopen();
        if (failure_.empty()) check_bytes({0, model_.size()}, "the whole file at the end");
        return failure_.empty() ? "" : report();
    }

private:
    // ---- random values ----
    size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
    // Prefers page boundaries and their neighbours, where mistakes are likely.
    size_t position(size_t limit) {
        size_t place = below(limit + 1);
        if (below(3) == 0) place = place / kPage * kPage + below(3) - 1;
        return place > limit ? limit : place;  // 0 - 1 wraps and exceeds every limit
    }
    size_t length(size_t limit) {
        static constexpr size_t kScales[] = {8, 512, kPage, 3 * kPage, kLongest, kLongest};
        return std::min(limit, 1 + position(kScales[below(std::size(kScales))]));
    }
    Range range_within(size_t limit) {
        const size_t offset = position(limit);
        return {offset, length(limit - offset)};
    }
    std::string fresh_bytes(size_t size) { return pattern(size, static_cast<unsigned>(random_())); }

    // ---- the copy ----
    void model_write(size_t offset, const std::string& bytes) {
        if (bytes.empty()) return;  // a write of 0 bytes never extends a file
        if (model_.size() < offset + bytes.size()) model_.resize(offset + bytes.size());
        std::copy(bytes.begin(), bytes.end(), model_.begin() + static_cast<ptrdiff_t>(offset));
    }

    // ---- failures ----
    void did(std::string text) {
        history_.push_back(fmt::format("{:6} {}", done_, std::move(text)));
        if (history_.size() > kRemembered) history_.pop_front();
    }
    void fail(std::string text) {
        if (failure_.empty()) failure_ = std::move(text);
    }
    // Whether the call returned the wanted number of bytes.
    bool expect(const char* what, ssize_t result, size_t wanted) {
        if (result == static_cast<ssize_t>(wanted)) return true;
        fail(result < 0 ? fmt::format("{}: {}", what, errno_name(errno))
                        : fmt::format("{} returned {} instead of {}", what, result, wanted));
        return false;
    }
    std::string report() const {
        std::string text =
            fmt::format("fsx: {} (operation {}, size {})\nthe last operations:\n", failure_, done_ - 1, model_.size());
        for (const auto& line : history_) text += line + "\n";
        return text;
    }

    // ---- checks ----
    void compare(Range range, const char* bytes, const char* what) {
        const char* wanted = model_.data() + range.offset;
        const auto [got, want] = std::mismatch(bytes, bytes + range.size, wanted);
        if (got == bytes + range.size) return;
        size_t wrong = 0;
        for (size_t i = 0; i < range.size; ++i) wrong += bytes[i] != wanted[i];
        const auto at = static_cast<size_t>(got - bytes);
        const size_t shown = std::min<size_t>(16, range.size - at);
        fail(fmt::format("{}: the first wrong byte is at {:#x} ({} wrong in {:#x}..{:#x}): {} instead of {}", what,
                         range.offset + at, wrong, range.offset, range.end(), in_quotes({got, shown}),
                         in_quotes({want, shown})));
    }
    void check_bytes(Range range, const char* what) {
        std::string bytes(range.size, '?');
        if (expect(what, ::pread(fd_, bytes.data(), range.size, static_cast<off_t>(range.offset)), range.size))
            compare(range, bytes.data(), what);
    }
    void check_size() {
        struct stat by_fd{}, by_name{};
        if (::fstat(fd_, &by_fd) != 0 || ::stat(path_.c_str(), &by_name) != 0)
            return fail("stat: " + errno_name(errno));
        if (static_cast<size_t>(by_fd.st_size) != model_.size() || by_name.st_size != by_fd.st_size)
            fail(fmt::format("the size is {} (by name {}) instead of {}", by_fd.st_size, by_name.st_size,
                             model_.size()));
    }

    // ---- operations ----
    void read() {
        const auto range = range_within(model_.size());
        did(fmt::format("read {:#x}..{:#x}", range.offset, range.end()));
        check_bytes(range, "read");
    }
    void read_over_the_end() {
        const size_t offset = position(model_.size() + kPage);
        did(fmt::format("read from {:#x} over the end", offset));
        std::string bytes(model_.size() + kPage, '?');
        const size_t there = offset < model_.size() ? model_.size() - offset : 0;
        if (expect("read over the end", ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)), there))
            compare({std::min(offset, model_.size()), there}, bytes.data(), "read over the end");
    }
    void write() {
        const auto range = range_within(options_.largest);
        const auto bytes = fresh_bytes(range.size);
        did(fmt::format("write {:#x}..{:#x}", range.offset, range.end()));
        if (expect("write", ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(range.offset)), range.size))
            model_write(range.offset, bytes);
    }
    void write_in_pieces() {
        const auto range = range_within(options_.largest);
        auto bytes = fresh_bytes(range.size);
        const size_t first = below(range.size + 1);
        const iovec pieces[2] = {{bytes.data(), first}, {bytes.data() + first, range.size - first}};
        did(fmt::format("writev {:#x}..{:#x}, cut after {}", range.offset, range.end(), first));
        if (expect("pwritev", ::pwritev(fd_, pieces, 2, static_cast<off_t>(range.offset)), range.size))
            model_write(range.offset, bytes);
    }
    void append() {
        const auto bytes = fresh_bytes(length(options_.largest - model_.size()));
        did(fmt::format("append {:#x}", bytes.size()));
        const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
        if (expect("append", ::write(fd, bytes.data(), bytes.size()), bytes.size())) model_write(model_.size(), bytes);
        if (::close(fd) != 0) fail("close after append: " + errno_name(errno));
    }
    void truncate() {
        const size_t size = below(8) == 0 ? 0 : position(options_.largest);
        const bool by_name = below(2) == 0;
        did(fmt::format("{} {:#x} -> {:#x}", by_name ? "truncate" : "ftruncate", model_.size(), size));
        const auto wanted = static_cast<off_t>(size);
        if (expect("truncate", by_name ? ::truncate(path_.c_str(), wanted) : ::ftruncate(fd_, wanted), 0))
            model_.resize(size);
    }
    void fallocate(bool keep_size) {
        const auto range = range_within(options_.largest);
        if (range.size == 0) return;
        did(fmt::format("fallocate{} {:#x}..{:#x}", keep_size ? " (keep size)" : "", range.offset, range.end()));
        const int result = ::fallocate(fd_, keep_size ? FALLOC_FL_KEEP_SIZE : 0, static_cast<off_t>(range.offset),
                                       static_cast<off_t>(range.size));
        if (expect("fallocate", result, 0) && !keep_size) model_.resize(std::max(model_.size(), range.end()));
    }
    void punch() {
        const auto range = range_within(options_.largest);
        if (range.size == 0) return;
        did(fmt::format("punch {:#x}..{:#x}", range.offset, range.end()));
        const int result = ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                       static_cast<off_t>(range.offset), static_cast<off_t>(range.size));
        if (!expect("punch", result, 0)) return;
        for (size_t i = range.offset; i < std::min(range.end(), model_.size()); ++i) model_[i] = 0;
    }
    void copy() {
        const auto from = range_within(model_.size());
        const size_t to = position(options_.largest - from.size);
        if (from.size == 0 || (to < from.end() && from.offset < to + from.size)) return;  // overlaps are refused
        did(fmt::format("copy_file_range {:#x}..{:#x} -> {:#x}", from.offset, from.end(), to));
        size_t copied = 0;
        while (copied < from.size) {  // a call may copy fewer bytes
            auto in = static_cast<off_t>(from.offset + copied);
            auto out = static_cast<off_t>(to + copied);
            const ssize_t n = ::copy_file_range(fd_, &in, fd_, &out, from.size - copied, 0);
            if (n <= 0) return fail(fmt::format("copy_file_range: {}", n < 0 ? errno_name(errno) : "nothing copied"));
            copied += static_cast<size_t>(n);
        }
        model_write(to, std::string(model_.data() + from.offset, from.size));
    }
    void reopen() {
        did("reopen");
        if (::close(fd_) != 0) fail("close: " + errno_name(errno));
        fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
        if (fd_ < 0) fail("reopen: " + errno_name(errno));
    }
    void sync() {
        did("fsync");
        expect("fsync", ::fsync(fd_), 0);
    }

    // ---- mappings ----
    void map(bool writing) {
        const auto range = range_within(model_.size());
        if (range.size == 0) return;
        did(fmt::format("{} through a mapping {:#x}..{:#x}", writing ? "write" : "read", range.offset, range.end()));
        const size_t start = range.offset / kPage * kPage;
        const size_t size = (range.end() - start + kPage - 1) / kPage * kPage;
        void* address =
            ::mmap(nullptr, size, PROT_READ | (writing ? PROT_WRITE : 0), MAP_SHARED, fd_, static_cast<off_t>(start));
        if (address == MAP_FAILED) return fail("mmap: " + errno_name(errno));
        auto* memory = static_cast<char*>(address);
        if (writing) map_write(range, memory + (range.offset - start));
        else compare(range, memory + (range.offset - start), "read through a mapping");
        check_tail(memory, start, size);
        if (writing && below(2) == 0) expect("msync", ::msync(address, size, MS_SYNC), 0);
        ::munmap(address, size);
    }
    void map_write(Range range, char* memory) {
        const auto bytes = fresh_bytes(range.size);
        std::memcpy(memory, bytes.data(), bytes.size());
        model_write(range.offset, bytes);
        check_bytes(range, "read after a write through a mapping");
    }
    // The rest of the last page after the end of the file is zero.
    void check_tail(const char* memory, size_t start, size_t size) {
        for (size_t i = model_.size(); i < start + size; ++i)
            if (memory[i - start] != 0) return fail(fmt::format("the last page is not zero at {:#x}", i));
    }

    void step() {
        switch (below(14)) {
            case 0:
            case 1: return read();
            case 2: return read_over_the_end();
            case 3:
            case 4: return write();
            case 5: return write_in_pieces();
            case 6: return append();
            case 7: return truncate();
            case 8: return options_.use_fallocate ? fallocate(below(2) == 0) : write();
            case 9: return options_.use_punch ? punch() : write();
            case 10: return options_.use_copy_file_range ? copy() : write();
            case 11: return options_.use_mmap ? map(false) : read();
            case 12: return options_.use_mmap ? map(true) : write();
            default: return below(2) == 0 ? reopen() : sync();
        }
    }

    const std::string path_;
    const FsxOptions options_;
    std::mt19937_64 random_;
    int fd_ = -1;
    int done_ = 0;
    std::vector<char> model_;
    std::deque<std::string> history_;
    std::string failure_;
};

}  // namespace

std::string run_fsx(const std::string& path, uint64_t seed, int operations, FsxOptions options) {
    auto text = Fsx(path, seed, options).run(operations);
    return text.empty() ? text : fmt::format("seed {}: {}", seed, text);
}

}  // namespace gshm::core::test

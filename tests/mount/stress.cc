#include "mount/stress.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <initializer_list>
#include <map>
#include <random>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "mount/posix_scenarios.h"
#include "mount/recorder.h"
#include "mount/stress_checks.h"

namespace gshm::core::test {
namespace {

constexpr size_t kSharedFolders = 6;
constexpr size_t kSharedFiles = 12;  // in each folder
constexpr size_t kOwnFiles = 16;

class Worker {
public:
    Worker(std::string dir, int number, StressOptions options)
        : dir_(std::move(dir)), number_(number), options_(options), random_(options.seed * 1000 + number) {}

    std::string run() {
        own_ = fmt::format("{}/own{}", dir_, number_);
        allow("mkdir of its own", ::mkdir(own_.c_str(), 0755), {});
        for (done_ = 0; done_ < options_.operations && failure_.empty(); ++done_) step();
        if (failure_.empty()) verify_all();
        return failure_.empty() ? "" : fmt::format("process {}, operation {}: {}", number_, done_, failure_);
    }

private:
    size_t below(size_t limit) { return random_() % limit; }
    std::string shared_folder() { return fmt::format("{}/folder{}", dir_, below(kSharedFolders)); }
    std::string shared_file() { return fmt::format("{}/file{}", shared_folder(), below(kSharedFiles)); }
    std::string shared_mark() { return fmt::format("{}/mark{}", shared_folder(), below(kSharedFiles)); }
    std::string own_name(size_t i) const { return fmt::format("{}/f{}", own_, i); }
    std::string aside() const { return fmt::format("{}/aside", own_); }

    void fail(std::string text) {
        if (failure_.empty()) failure_ = std::move(text);
    }
    // Whether the call succeeded. Fails the run unless the error is one of these.
    bool allow(const std::string& what, long result, std::initializer_list<int> errors) {
        if (result >= 0) return true;
        const int code = errno;
        for (const int error : errors)
            if (code == error) return false;
        fail(fmt::format("{}: {}", what, errno_name(code)));
        return false;
    }

    bool write_file(const std::string& name, const std::string& bytes) {
        const int fd = ::open(name.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
        if (!allow("create of its own " + name, fd, {})) return false;
        for (size_t done = 0; done < bytes.size();) {
            const size_t piece = std::min<size_t>(bytes.size() - done, 1 + below(40'000));
            const ssize_t n = ::write(fd, bytes.data() + done, piece);
            if (!allow("write", n, {})) break;
            done += static_cast<size_t>(n);
        }
        allow("close", ::close(fd), {});
        return failure_.empty();
    }
    // Reads the contents of `fd`, even if its name is renamed or unlinked meanwhile.
    std::string read_all(int fd) {
        std::string bytes;
        char block[32768];
        ssize_t n = 0;
        while ((n = ::read(fd, block, sizeof block)) > 0) bytes.append(block, static_cast<size_t>(n));
        allow("read", n, {});
        return bytes;
    }

    // ---- its own files ----
    void own_write() {
        const size_t i = below(kOwnFiles);
        const auto bytes = complete_file(below(options_.largest), random_());
        if (write_file(own_name(i), bytes)) contents_[i] = bytes;
    }
    void own_append() {
        const size_t i = below(kOwnFiles);
        const auto more = pattern(1 + below(5000), static_cast<unsigned>(random_()));
        const int fd = ::open(own_name(i).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
        if (!contents_.contains(i)) {
            if (fd >= 0) fail(own_name(i) + " is there although it was never made or has gone");
            return;
        }
        if (!allow("open of its own", fd, {})) return;
        if (::write(fd, more.data(), more.size()) != static_cast<ssize_t>(more.size())) fail("append is short");
        ::close(fd);
        contents_[i] += more;
    }
    void own_truncate() {
        const size_t i = below(kOwnFiles);
        if (!contents_.contains(i)) return;
        const size_t size = below(options_.largest);
        if (allow("truncate of its own", ::truncate(own_name(i).c_str(), static_cast<off_t>(size)), {}))
            contents_[i].resize(size);
    }
    void own_rename() {
        const size_t from = below(kOwnFiles), to = below(kOwnFiles);
        if (!contents_.contains(from) || from == to) return;
        if (!allow("rename of its own", ::rename(own_name(from).c_str(), own_name(to).c_str()), {})) return;
        contents_[to] = std::move(contents_[from]);
        contents_.erase(from);
    }
    void own_unlink() {
        const size_t i = below(kOwnFiles);
        const bool there = contents_.erase(i) > 0;
        const int result = ::unlink(own_name(i).c_str());
        if (there) allow("unlink of its own", result, {});
        else if (result == 0) fail("unlinked what it had not");
    }
    void own_verify(size_t i) {
        const int fd = ::open(own_name(i).c_str(), O_RDONLY | O_CLOEXEC);
        if (!contents_.contains(i)) {
            if (fd >= 0) fail(own_name(i) + " should not be there");
            return;
        }
        if (!allow("open of its own", fd, {})) return;
        const auto bytes = read_all(fd);
        struct stat st{};
        allow("fstat", ::fstat(fd, &st), {});
        ::close(fd);
        const auto& wanted = contents_[i];
        if (static_cast<size_t>(st.st_size) != wanted.size() || st.st_nlink != 1)
            fail(fmt::format("{}: size {} instead of {}, {} links", own_name(i), st.st_size, wanted.size(),
                             st.st_nlink));
        if (bytes == wanted) return;
        size_t at = 0;
        while (at < bytes.size() && at < wanted.size() && bytes[at] == wanted[at]) ++at;
        fail(fmt::format("{}: {} bytes instead of {}, the first wrong one at {:#x}", own_name(i), bytes.size(),
                         wanted.size(), at));
    }
    void verify_all() {
        for (size_t i = 0; i < kOwnFiles; ++i) own_verify(i);
    }

    // ---- shared names ----
    void share_by_rename() {
        if (!write_file(aside(), complete_file(below(options_.largest), random_()))) return;
        allow("rename into a shared folder", ::rename(aside().c_str(), shared_file().c_str()), {ENOENT});
    }
    void share_by_link() {
        ::unlink(aside().c_str());
        if (!write_file(aside(), complete_file(below(options_.largest), random_()))) return;
        allow("link into a shared folder", ::link(aside().c_str(), shared_file().c_str()), {ENOENT, EEXIST});
        allow("unlink aside", ::unlink(aside().c_str()), {});
    }
    void shared_read() {
        const auto name = shared_file();
        const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
        if (!allow("open of a shared file", fd, {ENOENT})) return;
        const auto wrong = verify_complete(read_all(fd));
        if (!wrong.empty()) fail(name + ": " + wrong);
        ::close(fd);
    }
    void shared_rename() {
        allow("rename of a shared file", ::rename(shared_file().c_str(), shared_file().c_str()), {ENOENT});
    }
    void shared_link() {
        allow("link of a shared file", ::link(shared_file().c_str(), shared_file().c_str()), {ENOENT, EEXIST});
    }
    void shared_unlink() { allow("unlink of a shared file", ::unlink(shared_file().c_str()), {ENOENT}); }
    void shared_stat() {
        const auto name = shared_file();
        struct stat st{};
        if (!allow("stat of a shared file", ::stat(name.c_str(), &st), {ENOENT})) return;
        if (!S_ISREG(st.st_mode)) fail(name + " is not a file");
    }
    void mark() {
        const int fd = ::open(shared_mark().c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (allow("exclusive create", fd, {ENOENT, EEXIST})) ::close(fd);
    }
    void unmark() { allow("unlink of a mark", ::unlink(shared_mark().c_str()), {ENOENT}); }
    void make_folder() { allow("mkdir of a shared folder", ::mkdir(shared_folder().c_str(), 0755), {EEXIST}); }
    void remove_folder() {
        allow("rmdir of a shared folder", ::rmdir(shared_folder().c_str()), {ENOENT, ENOTEMPTY, EEXIST});
    }
    void rename_folder() {
        allow("rename of a shared folder", ::rename(shared_folder().c_str(), shared_folder().c_str()),
              {ENOENT, ENOTEMPTY, EEXIST});
    }
    void list_folder() {
        DIR* stream = ::opendir(shared_folder().c_str());
        if (!allow("opendir", stream ? 0 : -1, {ENOENT})) return;
        std::set<std::string> seen;
        for (;;) {
            errno = 0;
            const dirent* entry = ::readdir(stream);
            if (!entry) break;
            const std::string name = entry->d_name;
            const bool known = name.starts_with("file") || name.starts_with("mark") || name == "." || name == "..";
            if (!known) fail("an unknown name is listed: " + in_quotes(name));
            seen.insert(name);
        }
        allow("readdir", errno == 0 ? 0 : -1, {ENOENT});
        ::closedir(stream);
    }

    void step() {
        switch (below(22)) {
            case 0:
            case 1: return own_write();
            case 2: return own_append();
            case 3: return own_truncate();
            case 4: return own_rename();
            case 5: return own_unlink();
            case 6:
            case 7: return own_verify(below(kOwnFiles));
            case 8:
            case 9: return share_by_rename();
            case 10: return share_by_link();
            case 11:
            case 12: return shared_read();
            case 13: return shared_rename();
            case 14: return shared_link();
            case 15: return shared_unlink();
            case 16: return shared_stat();
            case 17: return mark();
            case 18: return unmark();
            case 19: return make_folder();
            case 20: return below(2) == 0 ? remove_folder() : rename_folder();
            default: return list_folder();
        }
    }

    const std::string dir_;
    const int number_;
    const StressOptions options_;
    std::mt19937_64 random_;
    std::string own_;
    int done_ = 0;
    std::map<size_t, std::string> contents_;  // the expected contents of its own files
    std::string failure_;
};

std::string text_of(int fd) {
    std::string text;
    char block[4096];
    ssize_t n = 0;
    while ((n = ::read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) text.append(block, static_cast<size_t>(n));
    return text;
}

}  // namespace

std::string run_stress(const std::string& dir, StressOptions options) {
    const auto root = dir + "/stress";
    remove_tree(root);
    if (::mkdir(root.c_str(), 0755) != 0) return "cannot make " + root + ": " + errno_name(errno);
    int log[2] = {-1, -1};
    if (::pipe2(log, O_CLOEXEC) != 0) return "no pipe: " + errno_name(errno);
    std::vector<pid_t> workers;
    for (int i = 0; i < options.processes; ++i) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            const auto problem = Worker(root, i, options).run();
            if (!problem.empty()) Recorder(log[1]).line(problem);
            ::_exit(0);
        }
        if (pid > 0) workers.push_back(pid);
    }
    ::close(log[1]);
    auto problems = text_of(log[0]);
    ::close(log[0]);
    for (const pid_t pid : workers) {
        int status = 0;
        while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        if (WIFSIGNALED(status))
            problems += fmt::format("a process was ended by SIG{}\n", ::sigabbrev_np(WTERMSIG(status)));
    }
    if (workers.size() != static_cast<size_t>(options.processes)) problems += "not all processes could be started\n";
    problems += check_consistency(root);
    if (!problems.empty()) return fmt::format("stress, seed {}:\n{}", options.seed, problems);
    remove_tree(root);
    return ::access(root.c_str(), F_OK) == 0 ? "the tree cannot be removed" : "";
}

}  // namespace gshm::core::test

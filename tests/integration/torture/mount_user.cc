// A user of the mount: files are written, appended to, renamed, removed, mapped and held open. No other process works
// in its folder, so no call may fail, even while the daemon is killed.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "integration/torture/library_user.h"
#include "support/pattern.h"

namespace gshm::core::torture {
namespace {

using test::Random;

constexpr uint64_t kSizes[] = {8, 11, 4096, 5000, 131'072, 200'001, 1 << 20, (5 << 20) + 3};
constexpr const char* kAttribute = "user.number";

std::string failed_call(const std::string& what) {
    return what + ": " + strerror(errno);
}

std::string read_all(int fd, uint64_t bytes, std::string* ret_bytes) {
    ret_bytes->assign(bytes, '\0');
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, ret_bytes->data() + done, bytes - done, static_cast<off_t>(done));
        if (got <= 0) return failed_call("read at " + std::to_string(done) + " of " + std::to_string(bytes));
        done += static_cast<size_t>(got);
    }
    return {};
}

// A file without a name, or a mapping of it.
class Held {
public:
    Held(int fd, void* memory, const Version& version) : fd_(fd), memory_(memory), version_(version) {}
    Held(Held&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)), memory_(std::exchange(other.memory_, nullptr)), version_(other.version_) {}
    Held& operator=(Held&& other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(memory_, other.memory_);
        std::swap(version_, other.version_);
        return *this;
    }
    ~Held() {
        if (memory_ != nullptr) munmap(memory_, version_.bytes);
        if (fd_ >= 0) ::close(fd_);
    }
    std::string check() const {
        std::string bytes;
        if (memory_ != nullptr) bytes.assign(static_cast<const char*>(memory_), version_.bytes);
        else if (auto wrong = read_all(fd_, version_.bytes, &bytes); !wrong.empty()) return "what is held: " + wrong;
        return bytes == bytes_of(version_) ? "" : "what is held has changed: " + describe(version_);
    }

private:
    int fd_;
    void* memory_;
    Version version_;
};

class MountUser {
public:
    explicit MountUser(const Task& task)
        : task_(task),
          journal_(*task.journal),
          random_(task.seed),
          folder_(task.mount + "/" + folder_of(task.number)) {}

    std::string run() {
        if (mkdir(folder_.c_str(), 0755) != 0 && errno != EEXIST) return failed_call("mkdir " + folder_);
        // Left by the previous process, which was killed.
        if (rmdir(inner().c_str()) != 0 && errno != ENOENT) return failed_call("rmdir " + inner());
        auto wrong = settle(journal_, {[this](unsigned slot, Version* found) { return look(slot, found); },
                                       [this](unsigned slot) -> std::string {
                                           if (::unlink(path(slot).c_str()) == 0 || errno == ENOENT) return {};
                                           return failed_call("unlink of what was half written");
                                       }});
        while (wrong.empty() && !task_.shared->stop) {
            if (task_.shared->pause) {
                for (const Held& held : held_) {
                    if (wrong = held.check(); !wrong.empty()) return wrong;
                    journal_.checks.fetch_add(1);
                }
                held_.clear();
                journal_.paused = true;
                usleep(500);
                continue;
            }
            journal_.paused = false;
            wrong = take_step();
        }
        return wrong;
    }

private:
    std::string take_step() {
        const auto slot = static_cast<unsigned>(random_.below(kTemporary));
        const Version now = journal_.slots[slot];
        switch (random_.below(10)) {
            case 0:
            case 1: return write(slot);
            case 2:
            case 3: {
                if (auto wrong = write(kTemporary); !wrong.empty()) return wrong;
                if (now.exists() && random_.below(2) == 0) {
                    if (auto wrong = hold(slot); !wrong.empty()) return wrong;
                }
                return rename(kTemporary, slot);
            }
            case 4: return now.exists() ? append(slot) : write(slot);
            case 5: {
                if (!now.exists()) return {};
                if (random_.below(2) == 0) {
                    if (auto wrong = hold(slot); !wrong.empty()) return wrong;
                }
                Step step = step_of(slot, {});
                journal_.begin(step);
                if (::unlink(path(slot).c_str()) != 0) return failed_call("unlink");
                journal_.finish(true);
                return {};
            }
            case 6: {
                const auto other = static_cast<unsigned>(random_.below(kTemporary));
                return now.exists() && other != slot ? rename(slot, other) : std::string();
            }
            case 7: return now.exists() ? attribute(slot) : std::string();
            case 8: {
                if (mkdir(inner().c_str(), 0755) != 0) return failed_call("mkdir");
                if (rmdir(inner().c_str()) != 0) return failed_call("rmdir");
                if (held_.empty()) return {};
                journal_.checks.fetch_add(1);
                return held_[random_.below(held_.size())].check();
            }
            default: {
                Version actual;
                if (auto wrong = look(slot, &actual); !wrong.empty()) return wrong;
                return actual == now ? "" : path(slot) + " is " + describe(actual) + ", not " + describe(now);
            }
        }
    }

    static Step step_of(unsigned slot, const Version& after, bool loose = false) {
        return {
            .a = slot, .b = slot, .a_before = {}, .b_before = {}, .a_after = after, .b_after = after, .loose = loose};
    }

    std::string put(int fd, const std::string& bytes, size_t from) {
        while (from < bytes.size()) {
            const size_t piece = std::min<size_t>(bytes.size() - from, 1 + random_.below(400'000));
            const ssize_t done = ::write(fd, bytes.data() + from, piece);
            if (done < 0) return failed_call("write");
            if (done != static_cast<ssize_t>(piece)) {
                return "write of " + std::to_string(piece) + " bytes at " + std::to_string(from) + " wrote " +
                       std::to_string(done);
            }
            from += piece;
        }
        return ::close(fd) == 0 ? "" : failed_call("close");
    }

    std::string write(unsigned slot) {
        const bool exists = journal_.slots[slot].exists();
        // The attribute belongs to the file, and stays.
        const Version next{random_.next() | 1, kSizes[random_.below(std::size(kSizes))],
                           journal_.slots[slot].attribute};
        journal_.begin(step_of(slot, next, true));
        const int fd = open(path(slot).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (exists ? O_TRUNC : O_EXCL), 0644);
        if (fd < 0) return failed_call(exists ? "open to truncate" : "open to create");
        if (auto wrong = put(fd, bytes_of(next), 0); !wrong.empty()) return wrong;
        journal_.finish(true);
        return {};
    }

    std::string append(unsigned slot) {
        Version next = journal_.slots[slot];
        const uint64_t before = next.bytes;
        if (before > (12 << 20)) return {};
        next.bytes += 1 + random_.below(300'000);
        journal_.begin(step_of(slot, next, true));
        const int fd = open(path(slot).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
        if (fd < 0) return failed_call("open to append");
        if (auto wrong = put(fd, bytes_of(next), before); !wrong.empty()) return wrong;
        journal_.finish(true);
        return {};
    }

    std::string rename(unsigned from, unsigned to) {
        journal_.begin(
            {.a = from, .b = to, .a_before = {}, .b_before = {}, .a_after = {}, .b_after = journal_.slots[from]});
        if (::rename(path(from).c_str(), path(to).c_str()) != 0) return failed_call("rename");
        journal_.finish(true);
        return {};
    }

    std::string attribute(unsigned slot) {
        Version next = journal_.slots[slot];
        const int how = next.attribute == 0 ? XATTR_CREATE : XATTR_REPLACE;
        next.attribute = random_.next() | 1;
        journal_.begin(step_of(slot, next));
        if (setxattr(path(slot).c_str(), kAttribute, &next.attribute, sizeof next.attribute, how) != 0) {
            return failed_call(how == XATTR_CREATE ? "setxattr, to create" : "setxattr, to replace");
        }
        journal_.finish(true);
        return {};
    }

    // Called before its name is removed.
    std::string hold(unsigned slot) {
        if (held_.size() >= 4) held_.erase(held_.begin());
        const Version& version = journal_.slots[slot];
        const int fd = open(path(slot).c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return failed_call("open to hold");
        void* memory = nullptr;
        if (random_.below(2) == 0) {
            memory = mmap(nullptr, version.bytes, PROT_READ, MAP_SHARED, fd, 0);
            if (memory == MAP_FAILED) return failed_call("mmap");
        }
        held_.emplace_back(fd, memory, version);
        return {};
    }

    std::string look(unsigned slot, Version* ret_version) {
        *ret_version = {};
        const int fd = open(path(slot).c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) return {};
        if (fd < 0) return failed_call("open to read");
        struct stat info = {};
        if (fstat(fd, &info) != 0) return failed_call("fstat");
        std::string bytes;
        if (auto wrong = read_all(fd, static_cast<uint64_t>(info.st_size), &bytes); !wrong.empty()) return wrong;
        *ret_version = {seed_of(bytes), bytes.size(), 0};
        if (bytes != bytes_of(*ret_version)) return path(slot) + " has wrong bytes: " + describe_bytes(bytes);
        if (fgetxattr(fd, kAttribute, &ret_version->attribute, sizeof(uint64_t)) < 0 && errno != ENODATA) {
            return failed_call("fgetxattr");
        }
        ::close(fd);
        journal_.checks.fetch_add(1);
        return {};
    }

    std::string path(unsigned slot) const { return task_.mount + "/" + name_of(task_.number, slot); }
    std::string inner() const { return folder_ + "/inner"; }

    const Task& task_;
    Journal& journal_;
    Random random_;
    std::string folder_;
    std::vector<Held> held_;
};

}  // namespace

std::string use_mount(const Task& task) {
    return MountUser(task).run();
}

}  // namespace gshm::core::torture

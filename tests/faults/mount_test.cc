// Operations in the mount while calls of gshmd fail.
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

struct OpenFile {
    explicit OpenFile(int number) : fd(number) {}
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() {
        if (fd >= 0) close(fd);
    }
    int fd;
};

class FaultsMount : public FaultTest, public ::testing::WithParamInterface<Way> {
protected:
    void SetUp() override {
        if (auto missing = missing_for(GetParam()); !missing.empty()) GTEST_SKIP() << missing;
    }

    // 0, or an error that is valid for a program.
    static int code_of(long result) {
        if (result >= 0) return 0;
        static const std::set<int> sane = {ENOSPC, ENOMEM, EMFILE, ENFILE, EIO, EBUSY, EPERM};
        EXPECT_TRUE(sane.contains(errno)) << strerror(errno);
        return errno;
    }
    std::string folder() const { return at("tried"); }
    std::string in(const std::string& name) const { return folder() + "/" + name; }

    std::vector<std::string> options() const {
        std::vector<std::string> made = {mount()};
        if (GetParam() == Way::through) made.push_back("--no-passthrough");
        return made;
    }
    // Makes a folder for files on the device.
    bool make_folder() {
        if (code_of(mkdir(folder().c_str(), 0755)) != 0) return false;
        const char* device = GetParam() == Way::cuda ? "cuda:0" : "host";
        return code_of(setxattr(folder().c_str(), "user.device", device, strlen(device), 0)) == 0;
    }
    // Runs without failures.
    void clean() {
        for (const auto& [name, bytes] : claims_) {
            if (bytes) {
                EXPECT_EQ(read_file(in(name)) == *bytes, true) << name;
            } else EXPECT_NE(access(in(name).c_str(), F_OK), 0) << name;
        }
        claims_.clear();
        std::error_code error;
        std::filesystem::remove_all(folder(), error);
        EXPECT_EQ(error.message(), std::error_code().message());
    }
    void run(const std::function<void()>& body, size_t most) {
        start_all(options());
        auto sweep_of = [&](Class kind, uint64_t count) {
            if (HasFailure()) return;
            sweep({.kind = kind,
                   .body =
                       [&] {
                           claims_.clear();
                           if (make_folder()) body();
                       },
                   .clean = [&] { clean(); },
                   .count = count,
                   .most = most,
                   .after = [&] { EXPECT_TRUE(is_mounted(mount())); }});
        };
        sweep_of(Class::system, 1);
        sweep_of(Class::interrupted, 1);
        sweep_of(Class::sqlite, 1);
        sweep_of(Class::sqlite, kAll);
        sweep_of(Class::catalog, kAll);
        if (GetParam() == Way::cuda) sweep_of(Class::device, 1);
        if (GetParam() == Way::cuda) sweep_of(Class::device, kAll);
        if (HasFailure()) return;
        check_restart(options());
        EXPECT_TRUE(is_mounted(mount()));
    }
    void claim(const std::string& name, std::optional<std::string> bytes) { claims_[name] = std::move(bytes); }
    void claim_nothing(const std::string& name) { claims_.erase(name); }

    std::map<std::string, std::optional<std::string>> claims_;  // nullopt: the file does not exist
};

// While changes are refused, a file may exist although its creation returned an error: the change was made, as gshmd's
// log says.
bool may_be_there(int code) {
    return code == ENOSPC || code == ENOMEM || code == EIO || code == EBUSY;
}

TEST_P(FaultsMount, Write) {
    run(
        [&] {
            OpenFile file(open(in("file").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
            if (file.fd < 0) {
                int code = code_of(-1);
                if (!may_be_there(code)) claim("file", std::nullopt);
                return;
            }
            std::string bytes;
            for (int i = 0; i < 6; ++i) {
                auto piece = pattern(std::to_string(i), size_t{20'000} << i);
                ssize_t put = pwrite(file.fd, piece.data(), piece.size(), static_cast<off_t>(bytes.size()));
                if (code_of(put) != 0) break;
                bytes += piece.substr(0, static_cast<size_t>(put));
                if (static_cast<size_t>(put) < piece.size()) break;
            }
            // Earlier data is intact after any failure. A read may be short if a part of it failed.
            std::string there(bytes.size(), '\0');
            ssize_t got = pread(file.fd, there.data(), there.size(), 0);
            if (code_of(got) == 0) {
                auto count = static_cast<size_t>(got);
                EXPECT_EQ(there.substr(0, count) == bytes.substr(0, count), true) << got;
            }
            if (code_of(ftruncate(file.fd, 1'000'000)) == 0) {
                struct stat status = {};
                if (code_of(fstat(file.fd, &status)) == 0) {
                    EXPECT_EQ(status.st_size, 1'000'000);
                }
            }
            auto kept = bytes.substr(0, 10'000);
            if (code_of(ftruncate(file.fd, 10'000)) == 0 && kept.size() == 10'000) claim("file", kept);
        },
        12);
}

TEST_P(FaultsMount, Names) {
    run(
        [&] {
            bool made = write_file(in("a"), "this is a") && write_file(in("b"), "this is b");
            if (!made) {
                code_of(-1);
                return;
            }
            claim("a", "this is a");
            claim("b", "this is b");
            if (code_of(mkdir(in("sub").c_str(), 0755)) == 0) {
                if (code_of(symlink("a", in("sub/link").c_str())) == 0) {
                    code_of(unlink(in("sub/link").c_str()));
                }
                int code = code_of(rename(in("a").c_str(), in("sub/c").c_str()));
                if (code == 0) {
                    claim("a", std::nullopt);
                    claim("sub/c", "this is a");
                } else {
                    claim_nothing("a");  // made or not: the error may come from the catalog, after the change
                }
            }
            int code = code_of(link(in("b").c_str(), in("hard").c_str()));
            if (code == 0) claim("hard", "this is b");
            code_of(setxattr(in("b").c_str(), "user.color", "blue", 4, 0));
            char value[8] = {};
            ssize_t length = getxattr(in("b").c_str(), "user.color", value, sizeof value);
            if (length > 0) {
                EXPECT_EQ(std::string(value, static_cast<size_t>(length)), "blue");
            }
            code_of(removexattr(in("b").c_str(), "user.color") == 0 || errno == ENODATA ? 0 : -1);
            if (code != 0 || !write_file(in("over"), "this is over")) return;
            if (code_of(rename(in("over").c_str(), in("b").c_str())) == 0) {
                claim("b", "this is over");
                claim("over", std::nullopt);
            } else {
                claim_nothing("b");
            }
        },
        12);
}

TEST_P(FaultsMount, OpenWhileUnlinked) {
    run(
        [&] {
            const auto bytes = pattern("source", 150'000);
            if (!write_file(in("source"), bytes)) {
                code_of(-1);
                return;
            }
            claim("source", bytes);
            OpenFile source(open(in("source").c_str(), O_RDONLY | O_CLOEXEC));
            OpenFile target(open(in("target").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
            if (source.fd < 0 || target.fd < 0) return;
            if (code_of(unlink(in("target").c_str())) == 0) claim("target", std::nullopt);
            off_t from = 0;
            off_t to = 0;
            ssize_t copied = copy_file_range(source.fd, &from, target.fd, &to, bytes.size(), 0);
            if (code_of(copied) == 0 && copied > 0) {
                std::string there(static_cast<size_t>(copied), '\0');
                ssize_t got = pread(target.fd, there.data(), there.size(), 0);
                if (code_of(got) == 0) {
                    EXPECT_EQ(there == bytes.substr(0, static_cast<size_t>(copied)), true);
                }
            }
            code_of(fallocate(target.fd, 0, 0, 400'000));
            code_of(fallocate(target.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
        },
        12);
}

INSTANTIATE_TEST_SUITE_P(Ways, FaultsMount, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         [](const auto& parameter) { return name_of(parameter.param); });

}  // namespace
}  // namespace gshm::core::test

// The mount.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "hostile/attack.h"

namespace gshm::core::hostile {
namespace {

constexpr unsigned kProcesses = 2;

std::string path_of(const Stage& stage, const std::string& name) {
    return stage.mount + "/at/" + name;
}

int make_file(const std::string& path) {
    return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

}  // namespace

void mount_opens(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned process) {
        size_t refusals = 0;
        for (uint64_t i = 0; stage.more() && refusals < 100; ++i) {
            const int fd = make_file(path_of(stage, std::to_string(process) + "-" + std::to_string(i)));
            refusals = stage.did(fd >= 0 && write(fd, "x", 1) == 1) ? 0 : refusals + 1;
        }
        stage.hold();
    });
}

void mount_lists(const Stage& stage) {
    const std::string folder = path_of(stage, "large");
    mkdir(folder.c_str(), 0700);
    for (uint64_t i = 0; i < stage.number * 50; ++i) close(make_file(folder + "/" + std::to_string(i)));
    stage.in_processes(kProcesses, [&](unsigned) {
        for (;;) {
            DIR* open = opendir(folder.c_str());
            while (open != nullptr && readdir(open) != nullptr) continue;
            stage.did(open != nullptr && closedir(open) == 0);
        }
    });
}

void mount_locks(const Stage& stage) {
    const int file = make_file(path_of(stage, "locked"));
    if (file < 0) stage.hold();
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_len = 1;
    int begun[2];  // closed by this process when it has begun
    if (pipe2(begun, O_CLOEXEC) != 0) stage.skip("no pipe");
    for (int i = 0; i < 50; ++i) {  // processes that wait
        if (fork() != 0) continue;
        struct flock all = range;
        all.l_len = 0;
        close(begun[1]);
        char none = 0;
        (void)!read(begun[0], &none, 1);
        fcntl(file, F_SETLKW, &all);
        stage.hold();
    }
    size_t refusals = 0;
    for (off_t i = 0; stage.more() && refusals < 1000; ++i) {
        range.l_start = 2 * i;
        refusals = stage.did(fcntl(file, F_SETLK, &range) == 0) ? 0 : refusals + 1;
        if (i == 0) close(begun[1]);
    }
    stage.progress->in_place = true;
    for (;;) {
        const int other = make_file(path_of(stage, "flock"));
        ::flock(other, LOCK_EX);
        close(other);
    }
}

void mount_truncates(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned process) {
        const int file = make_file(path_of(stage, "truncated" + std::to_string(process)));
        if (file < 0) stage.hold();
        for (uint64_t i = 0;; ++i) {
            stage.did(ftruncate(file, i % 2 == 0 ? (64 << 20) + static_cast<off_t>(i % 4096) : 0) == 0);
            if (i % 2 == 0 && pwrite(file, "x", 1, 32 << 20) != 1) stage.did(false);
        }
    });
}

void mount_attributes(const Stage& stage) {
    const std::string value(60'000, 'v');
    stage.in_processes(kProcesses, [&](unsigned process) {
        for (uint64_t i = 0;; ++i) {
            const std::string path =
                path_of(stage, "a" + std::to_string(process) + "-" + std::to_string(i / 16 % 1000));
            if (i % 16 == 0) close(make_file(path));
            const std::string name = "user.a" + std::to_string(i % 16);
            if (!stage.did(setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) == 0)) usleep(100);
        }
    });
}

void mount_creates(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned process) {
        for (uint64_t i = 0;; ++i) {
            const std::string path = path_of(stage, std::to_string(process) + "-" + std::to_string(i % 100));
            const int fd = make_file(path);
            stage.did(fd >= 0 && write(fd, "x", 1) == 1);
            close(fd);
            unlink(path.c_str());
        }
    });
}

}  // namespace gshm::core::hostile

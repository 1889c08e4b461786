#include "base/spawn.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include "base/fd.h"

extern char** environ;

namespace gshm::core {

Result<pid_t> spawn_apart(const std::string& path, std::vector<std::string> arguments,
                          std::span<const int> descriptors) {
    constexpr int kFirst = 3;
    const int end = kFirst + static_cast<int>(descriptors.size());
    // Numbered above the descriptors of the program, so that none is overwritten before it is copied.
    std::vector<UniqueFd> copies;
    for (int fd : descriptors) {
        copies.push_back(UniqueFd::adopt(fcntl(fd, F_DUPFD_CLOEXEC, end)));
        if (!copies.back()) return fail_errno("fcntl");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    for (int i = kFirst; i < end; ++i) {
        posix_spawn_file_actions_adddup2(&actions, copies[static_cast<size_t>(i - kFirst)].get(), i);
    }
    posix_spawn_file_actions_addclosefrom_np(&actions, end);  // closes the log, among others
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t child = -1;
    const int failed = posix_spawnp(&child, path.c_str(), &actions, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failed != 0) return fail(failed, "cannot start {}: {}", arguments[0], strerror(failed));
    return child;
}

}  // namespace gshm::core

#include "cli/support/context.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/support/json.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"

namespace gshm::cli {

Result<Client> Context::try_connect() const {
    return Client::connect({.dir = dir_, .timeout = {}});
}

Client Context::connect() const {
    auto client = try_connect();
    if (!client) throw no_daemon(client.error());
    return *std::move(client);
}

const Client& Context::client() {
    if (!client_) client_ = connect();
    return client_;
}

bool Context::daemon_answers() const {
    return try_connect().has_value();
}

std::string Context::dir() const {
    return dir_.empty() ? runtime_dir().value_or("$XDG_RUNTIME_DIR/gshm") : dir_;
}

std::string start_hint(const std::string& dir, const std::string& options) {
    // The default folder of root.
    if (dir == "/run/gshm" && ::geteuid() != 0)
        return "root starts it with `gshmd`; for a gshmd of your own, name another folder by --dir or GSHM_DIR";
    return fmt::format("start it with `gshmd{}`", options);
}

namespace {

// The folder is there, and this user may not use the socket in it.
std::string access_hint(const std::string& dir) {
    struct stat info = {};
    const bool group = ::stat(dir.c_str(), &info) != 0 || (info.st_mode & S_IXGRP) != 0;
    return fmt::format("only {} may use it (`ls -ld {}`)", group ? "members of its group" : "its owner and root",
                       printable(dir));
}

}  // namespace

Failure Context::no_daemon(const Error& error) const {
    if (error.code == EACCES && ::access((dir() + "/" GSHM_SOCKET_NAME).c_str(), W_OK) != 0)
        return Failure::of_error(error, {}, access_hint(dir()));
    if (error.code != ENOENT && error.code != ECONNREFUSED) return Failure::of_error(error, {});
    // Neither this program nor gshmd knows a folder then.
    if (dir_.empty() && !runtime_dir())
        return {error.code, ExitCode::no_daemon, error.message, "gshmd for all users is at /run/gshm"};
    // The library's hint also names the gshmd of root, if there is one.
    const auto message = fmt::format("gshmd is not running at {}", dir());
    auto hint = error.message.starts_with(message + "; ")
                    ? printable(error.message.substr(message.size() + 2))
                    : start_hint(dir(), dir_.empty() ? "" : " --dir " + printable(dir_));
    return {error.code, ExitCode::no_daemon, printable(message), std::move(hint)};
}

void Context::print(std::string_view text) const {
    write_stdout(text);
}

void Context::print(const Record& record) const {
    write_stdout(to_json(record, true) + '\n');
}

void Context::report(const Failure& failure) const {
    std::string text = failure.what();
    if (!json_) {
        if (!failure.hint().empty()) text += "; " + failure.hint();
        fmt::print(stderr, "gshm: {}\n", printable(text));
        return;
    }
    Record error;
    error.add("code", errno_name(failure.code())).add("errno", failure.code()).add("message", text);
    if (!failure.hint().empty()) error.add("hint", failure.hint());
    Record record;
    record.add("error", std::move(error));
    fmt::print(stderr, "{}\n", to_json(record, false));
}

void Context::warn(const std::string& message) const {
    if (!json_) {
        fmt::print(stderr, "gshm: warning: {}\n", printable(message));
        return;
    }
    Record warning;
    warning.add("message", message);
    Record record;
    record.add("warning", std::move(warning));
    fmt::print(stderr, "{}\n", to_json(record, false));
}

int Context::for_each(const std::vector<std::string>& names, const std::function<void(const std::string&)>& body) {
    client();
    int exit_code = 0;
    for (const auto& name : names) {
        try {
            body(name);
        } catch (const Failure& failure) {
            report(failure);
            if (exit_code == 0) exit_code = static_cast<int>(failure.exit_code());
        }
    }
    return exit_code;
}

Object Context::open(const std::string& name, bool write) {
    return check(client().open(name, {.write = write, .map = false}), name);
}

std::vector<UnlinkedEntry> Context::unlinked() {
    auto entries = client().unlinked();
    if (!entries && entries.error().code == EOPNOTSUPP) return {};
    return check(std::move(entries), {});
}

std::vector<MountInfo> Context::mounts() {
    auto mounts = client().mounts();
    if (mounts || mounts.error().code != EOPNOTSUPP) return check(std::move(mounts), {});
    const auto daemon = check(client().daemon(), {});
    MountInfo only = GSHM_MOUNT_INFO_INIT;
    std::string_view("gshm").copy(only.source, sizeof only.source - 1);
    std::string_view(daemon.mountpoint).copy(only.path, sizeof only.path - 1);
    return only.path[0] == '\0' ? std::vector<MountInfo>() : std::vector{only};
}

StatInfo Context::stat(const std::string& name) {
    return check(client().stat(name), name);
}

std::string without_trailing_slashes(std::string name) {
    while (name.ends_with('/')) name.pop_back();
    return name;
}

}  // namespace gshm::cli

#include "cli/support/context.h"

#include <cerrno>
#include <cstdlib>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/support/json.h"
#include "cli/support/streams.h"
#include "cli/support/text.h"

namespace gshm::cli {

int Context::connect(Client& ret_client) const {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.timeout_ms = 0;
    options.dir = dir_.empty() ? nullptr : dir_.c_str();
    gshm_client* client = nullptr;
    const int status = gshm_connect(&options, &client);
    if (status == 0) ret_client.reset(client);
    return status;
}

gshm_client* Context::client() {
    if (!client_)
        if (const int status = connect(client_); status < 0) throw no_daemon(status);
    return client_.get();
}

Client Context::connect() const {
    Client client;
    if (const int status = connect(client); status < 0) throw no_daemon(status);
    return client;
}

bool Context::daemon_answers() const {
    Client client;
    return connect(client) == 0;
}

std::string Context::dir() const {
    if (!dir_.empty()) return dir_;
    if (const char* dir = std::getenv("GSHM_DIR"); dir && *dir) return dir;
    if (::geteuid() == 0) return "/run/gshm";
    const char* dir = std::getenv("XDG_RUNTIME_DIR");
    return dir && *dir ? fmt::format("{}/gshm", dir) : "$XDG_RUNTIME_DIR/gshm";
}

Failure Context::no_daemon(int status) const {
    if (status != -ENOENT && status != -ECONNREFUSED) return Failure::of_status(status, {});
    return {-status, ExitCode::no_daemon, fmt::format("gshmd is not running at {}", printable(dir())),
            dir_.empty() ? "start it with `gshmd`" : fmt::format("start it with `gshmd --dir {}`", printable(dir_))};
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

Object Context::open(const std::string& name, uint32_t flags) {
    gshm_object* object = nullptr;
    check(gshm_open(client(), name.c_str(), flags | GSHM_NO_MAP, &object), name);
    return Object(object);
}

gshm_stat_info Context::stat(const std::string& name) {
    auto info = sized<gshm_stat_info>();
    check(gshm_stat(client(), name.c_str(), &info), name);
    return info;
}

std::string without_trailing_slashes(std::string name) {
    while (name.ends_with('/')) name.pop_back();
    return name;
}

}  // namespace gshm::cli

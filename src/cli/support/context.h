// What every command has: the connection, made when it is first needed, and where its output goes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/support/failure.h"
#include "cli/support/record.h"

namespace gshm::cli {

class Context {
public:
    // dir: runtime folder; empty for the default one.
    Context(std::string dir, bool json) : dir_(std::move(dir)), json_(json) {}

    bool json() const { return json_; }
    // Throws if there is no daemon, and says how to start one. Every attempt is a single one: a person waits.
    const Client& client();
    void disconnect() { client_.disconnect(); }
    // A further connection, for another thread.
    Client connect() const;
    bool daemon_answers() const;  // tried with a connection of its own
    // The runtime folder, as the library chooses it.
    std::string dir() const;

    // To standard output.
    void print(std::string_view text) const;
    void print(const Record& record) const;  // as JSON
    // To standard error, as a line or as JSON.
    void report(const Failure& failure) const;
    void warn(const std::string& message) const;

    // Connects, then runs body for each name; one that fails is reported and the others go on. The first failure's
    // exit code, or 0.
    int for_each(const std::vector<std::string>& names, const std::function<void(const std::string&)>& body);

    // Opened without a pointer, so that CUDA is never started here.
    Object open(const std::string& name, bool write = false);
    std::vector<DeviceInfo> devices() { return check(client().devices(), {}); }
    // Memory without a name that is still held; nothing of a daemon that is too old to tell.
    std::vector<UnlinkedEntry> unlinked();
    StatInfo stat(const std::string& name);

private:
    Result<Client> try_connect() const;
    Failure no_daemon(const Error& error) const;

    std::string dir_;
    bool json_;
    Client client_;
};

// "a/b" of "a/b///"; "" of "/".
std::string without_trailing_slashes(std::string name);

}  // namespace gshm::cli

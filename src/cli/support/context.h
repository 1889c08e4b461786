// The state that every command has: the connection, opened on first use, and the output.
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
    // dir: the runtime folder; empty for the default.
    Context(std::string dir, bool json) : dir_(std::move(dir)), json_(json) {}

    bool json() const { return json_; }
    // Throws if there is no daemon, with a hint how to start one. It does not retry, since a person waits.
    const Client& client();
    void disconnect() { client_.disconnect(); }
    // A further connection, for another thread.
    Client connect() const;
    bool daemon_answers() const;  // tried on a separate connection
    // The runtime folder, as the library chooses it.
    std::string dir() const;

    // Writes to standard output.
    void print(std::string_view text) const;
    void print(const Record& record) const;  // as JSON
    // Writes to standard error, as a line or as JSON.
    void report(const Failure& failure) const;
    void warn(const std::string& message) const;

    // Connects, then runs body for each name. A failure is reported and the others continue. Returns the exit code of
    // the first failure, or 0.
    int for_each(const std::vector<std::string>& names, const std::function<void(const std::string&)>& body);

    // Opens without a mapping, so that CUDA is never initialized here.
    Object open(const std::string& name, bool write = false);
    std::vector<DeviceInfo> devices() { return check(client().devices(), {}); }
    // Of a daemon that is too old to list them: its only one.
    std::vector<MountInfo> mounts();
    // Unlinked objects that are still held; empty if the daemon is too old to list them.
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

// How to start a gshmd at the folder, with the options that name it (" --dir DIR").
std::string start_hint(const std::string& dir, const std::string& options);

}  // namespace gshm::cli

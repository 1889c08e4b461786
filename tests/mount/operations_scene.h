// One operation by one interface, and its observable effects: its error, the names, times and rights in the kernel's
// view, and the events of a watch.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "mount/mount_fixture.h"
#include <gshm/watch.hpp>

namespace gshm::core::test {

enum class Column { library, mount, command };
std::string name_of(Column column);

// A separate directory for each operation.
class Scene {
public:
    Scene(MountFixture& fixture, std::string folder) : fixture_(fixture), folder_(std::move(folder)) {}

    std::string path(const std::string& name) const { return fixture_.at(full(name)); }
    std::string full(const std::string& name) const { return name.empty() ? folder_ : folder_ + "/" + name; }
    // A client of the library; a process connects at its first use.
    Client& client();
    // The error of `gshm ARGS…`; 0: none. ret_out, if not null, gets its output.
    int run(const std::vector<std::string>& args, std::string* ret_out = nullptr, const std::string& input = {});

    // For the preparation of a row.
    void make_file(const std::string& name, mode_t mode = 0644);
    void keep_open(const std::string& name, int flags);
    void close_files();

private:
    MountFixture& fixture_;
    std::string folder_;
    Client client_;
    pid_t connected_by_ = 0;
    std::vector<int> files_;
};

// 0 or an errno. ret_said: further results.
using Operation = std::function<int(Scene& scene, std::string& ret_said)>;

struct Exception {
    std::string expected;
    std::string reason;
};

struct Row {
    std::string name;
    std::function<void(Scene&)> prepare;
    uid_t user = 0;
    std::map<Column, Operation> ways;  // interfaces that have the operation
    // "EEXIST", or the changes; see outcome(). The same for all interfaces except for the exceptions.
    std::string expected;
    std::map<Column, Exception> exceptions = {};
};

// operations_rows.cc
std::vector<Row> operation_rows();

// The attributes of a directory and all entries below it, as the kernel shows them, by name. "." is the directory
// itself.
struct Sight {
    ino_t inode = 0;
    mode_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    nlink_t links = 0;
    off_t size = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
};
using Sights = std::map<std::string, Sight>;
// fresh: asks gshmd instead of the kernel's cache, and thereby refreshes the cache.
Sights look_at(const std::string& folder, bool fresh);
// "o: ctime; new n file 644; gone p"
std::string difference(const Sights& before, const Sights& after);

}  // namespace gshm::core::test

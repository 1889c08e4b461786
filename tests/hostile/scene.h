// A gshmd in a folder of its own, two users, and what gshmd holds before and after an attack.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hostile/attack.h"
#include "hostile/bystander.h"
#include "integration/daemon_fixture.h"

namespace gshm::core::hostile {

struct Holdings {
    // The descriptors that the other one has not: "2 socket, 1 memfd:gshm".
    std::string descriptors_beyond(const Holdings& other) const;

    uint64_t memory_kib = 0;   // anonymous memory of gshmd
    uint64_t descriptors = 0;  // of gshmd and its keeper
    std::map<std::string, uint64_t> descriptor_kinds;
    uint64_t files = 0;  // in the runtime folder
    uint64_t file_kib = 0;
    uint64_t log_kib = 0;
    uint64_t objects = 0;
};

// Memory shared with child processes; zeros.
template <typename T>
class SharedMemory {
public:
    SharedMemory();
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    T* operator->() const { return value_; }
    T* get() const { return value_; }

private:
    T* value_;
};

// A process of another user, with its children. Killed when this goes out of scope.
class UserProcess {
public:
    UserProcess(uid_t user, const std::function<void()>& body, const std::function<void()>& as_root = {});
    ~UserProcess() { end(); }
    UserProcess(const UserProcess&) = delete;
    UserProcess& operator=(const UserProcess&) = delete;

    bool running();
    bool ends_within(std::chrono::milliseconds limit);
    void wait();
    void end();  // kills it and waits

private:
    pid_t pid_ = -1;
};

class Scene : public test::DaemonFixture {
public:
    ~Scene();

    // Mounts of this program end with it. "" or the reason why it cannot run here.
    static std::string prepare_program();
    // With directories of the two users, and one that both may write.
    bool begin(bool mounted);
    // "" if there is none.
    std::string mount() const { return mount_; }
    std::string folder_of(const char* user) const { return scratch() + "/" + user; }

    Holdings holdings() const;
    uint64_t memory_kib() const;  // anonymous memory of gshmd
    // As root: removes the names that the attacker has left. False if that fails.
    bool remove_names_of_attacker() const;
    // Whether root can connect and list names, at any time.
    bool serves_root() const;
    // Limit for connections of root; none in a run without measurements.
    void set_patience(std::chrono::milliseconds limit) { patience_ = limit; }
    // After a kill: what is left is taken up again.
    bool restart();

private:
    std::vector<std::string> arguments() const;
    bool make_directory(const char* name, uid_t owner, uint32_t mode);

    std::string mount_;
    std::chrono::milliseconds patience_ = std::chrono::hours(1);
};

}  // namespace gshm::core::hostile

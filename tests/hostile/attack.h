// An attack: one thing that an ordinary user does without end, or more often than anybody needs. It runs in a process
// of its own as that user until it is killed. Refusals are harmless to it: it goes on, or stays with what it has.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace gshm::core::hostile {

constexpr uid_t kAttacker = 64001;
constexpr uid_t kBystander = 64002;

// Memory that the attacker shares with the program.
struct Progress {
    std::atomic<uint64_t> attempts;
    std::atomic<uint64_t> refused;
    std::atomic<bool> in_place;       // the number of attempts is reached, or nothing more is granted
    std::atomic<unsigned> processes;  // that the attack keeps busy; 0: one
    char skipped[200];                // why this machine cannot run the attack; "": it can
};

// What an attack knows and reports.
struct Stage {
    std::string dir;      // the runtime folder
    std::string mount;    // "": none
    std::string scratch;  // a folder of the attacker
    std::string golden;   // the folder with messages of released protocols
    uint64_t number = 0;  // attempts until the attack is in place; it may go on
    Progress* progress = nullptr;

    std::string socket() const { return dir + "/gshm.sock"; }
    bool more() const { return progress->attempts < number; }
    // Counts an attempt; returns its argument.
    bool did(bool granted) const;
    // Waits until the process is killed.
    [[noreturn]] void wait_for_end() const;
    // The same; the attack is in place.
    [[noreturn]] void hold() const;
    [[noreturn]] void skip(const std::string& why) const;
    // Runs the body in so many further processes, and in this one. The argument is the number of the process.
    void in_processes(unsigned count, const std::function<void(unsigned)>& body) const;
};

struct Attack {
    const char* name;
    const char* what;
    void (*run)(const Stage&);
    uint64_t number;  // attempts
    uint64_t few;     // in a short run
    enum Kind {
        plain,
        in_mount,      // needs a mount
        fills_folder,  // gshmd must start again with what the attacker has left
    } kind = plain;
    void (*prepare)(const Stage&) = nullptr;  // called in the process of the attack before it becomes the user
};

const std::vector<Attack>& attacks();

// Uses the processor and the kernel without end, and not gshmd.
[[noreturn]] void use_processor();

// What any user does: gshmd keeps a few empty slabs and engines for the next use of each user.
void use_ordinarily(const Stage&);
[[noreturn]] void connect_ordinarily(const Stage&);  // several connections at a time

// ---- attacks_connections.cc ----
void silent_connections(const Stage&);
void half_packets(const Stage&);
void malformed_packets(const Stage&);
void connection_storm(const Stage&);
void short_clients(const Stage&);
void unread_replies(const Stage&);
void refused_requests(const Stage&);
// ---- attacks_names.cc ----
void attributes(const Stage&);
void many_names(const Stage&);
void colliding_names(const Stage&);
void recursive_lists(const Stage&);
void batches(const Stage&);
void guessed_ids(const Stage&);
void sticky_links(const Stage&);
void empty_slabs(const Stage&);
// ---- attacks_sessions.cc ----
void waits(const Stage&);
void watches(const Stage&);
void leases(const Stage&);
void fences(const Stage&);
void copies(const Stage&);
// ---- attacks_descriptors.cc ----
void lingering_sockets(const Stage&);
void pipes(const Stage&);
void make_silent_file(const Stage&);
void silent_files(const Stage&);
void many_descriptors(const Stage&);
void ring_submissions(const Stage&);
void ring_kernel_files(const Stage&);
// ---- attacks_mount.cc ----
void mount_opens(const Stage&);
void mount_lists(const Stage&);
void mount_locks(const Stage&);
void mount_truncates(const Stage&);
void mount_attributes(const Stage&);
void mount_creates(const Stage&);

}  // namespace gshm::core::hostile

#include <cstdio>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile/attack.h"

namespace gshm::core::hostile {

bool Stage::did(bool granted) const {
    if (!granted) ++progress->refused;
    if (++progress->attempts >= number) progress->in_place = true;
    return granted;
}

void Stage::wait_for_end() const {
    for (;;) pause();
}

void Stage::hold() const {
    progress->in_place = true;
    wait_for_end();
}

void Stage::skip(const std::string& why) const {
    snprintf(progress->skipped, sizeof progress->skipped, "%s", why.c_str());
    hold();
}

void Stage::in_processes(unsigned count, const std::function<void(unsigned)>& body) const {
    progress->processes = count;
    unsigned number_of_this = 0;
    for (unsigned i = 1; i < count; ++i) {
        if (fork() == 0) {
            number_of_this = i;
            break;
        }
    }
    body(number_of_this);
}

void use_processor() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) _exit(1);
    char bytes[4096] = {};
    for (;;) {
        for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<char>(bytes[i] * 31 + 7);
        if (write(ends[0], bytes, sizeof bytes) < 0 || read(ends[1], bytes, sizeof bytes) < 0) _exit(1);
    }
}

// CMake reads the names from the lines of this table: each is a test.
const std::vector<Attack>& attacks() {
    static const std::vector<Attack> all = {
        // name, description, function, attempts, attempts in a short run
        {"silent-connections", "connections without a greeting", silent_connections, 30'000, 500},
        {"half-packets", "connections that send half of a greeting", half_packets, 30'000, 500},
        {"malformed-packets", "random packets, and changed messages of released protocols", malformed_packets, 20'000,
         2'000},
        {"connection-storm", "sessions that begin and end", connection_storm, 20'000, 500},
        {"short-clients", "processes that connect, create and exit", short_clients, 2'000, 100},
        {"unread-replies", "requests whose replies are never read", unread_replies, 1'000'000, 20'000},
        {"refused-requests", "requests that fail", refused_requests, 200'000, 5'000},
        {"attributes", "attributes until the runtime folder is full", attributes, 10'000, 5'000, Attack::fills_folder},
        {"names", "names until the runtime folder is full", many_names, 500'000, 10'000, Attack::fills_folder},
        {"colliding-names", "names with the same hash, if it has no key", colliding_names, 30'000, 2'000},
        {"recursive-lists", "recursive lists of a large tree", recursive_lists, 100, 5},
        {"batches", "creates and unlinks in the largest batches", batches, 500, 10},
        {"guessed-ids", "requests with the ids of other users' objects", guessed_ids, 2'000, 50},
        {"sticky-links", "links and renames in a directory that all may write", sticky_links, 20'000, 500},
        {"empty-slabs", "small objects of many modes and directories, which share no memory", empty_slabs, 5'000, 300},
        {"waits", "waits for names below one that is created again and again", waits, 204'800, 4'000},
        {"watches", "watches of all names, and a flood of events", watches, 100'000, 2'000},
        {"leases", "leases of one object", leases, 2'000'000, 20'000},
        {"fences", "fences of processes that exit", fences, 18'000, 300},
        {"copies", "copies of whole objects through gshmd", copies, 200, 10},
        {"lingering-sockets", "descriptors whose close blocks for seconds", lingering_sockets, 1'000, 30},
        {"pipes", "pipes in the place of files and memory", pipes, 5'000, 200},
        {"silent-files", "files of a file system that does not answer", silent_files, 2'000, 50, Attack::plain,
         make_silent_file},
        {"many-descriptors", "packets with as many descriptors as possible", many_descriptors, 20'000, 200},
        {"ring-submissions", "transfers by rings", ring_submissions, 50'000, 500},
        {"ring-kernel-files", "transfers of files of procfs and sysfs by rings", ring_kernel_files, 5'000, 200},
        {"mount-opens", "open files of the mount", mount_opens, 30'000, 500, Attack::in_mount},
        {"mount-lists", "lists of a large directory of the mount", mount_lists, 200, 5, Attack::in_mount},
        {"mount-locks", "locks of files of the mount, and processes that wait for them", mount_locks, 100'000, 2'000,
         Attack::in_mount},
        {"mount-truncates", "files of the mount that grow and shrink", mount_truncates, 5'000, 100, Attack::in_mount},
        {"mount-attributes", "attributes of files of the mount", mount_attributes, 20'000, 1'000, Attack::in_mount},
        {"mount-creates", "files of the mount that are created and removed", mount_creates, 20'000, 500,
         Attack::in_mount},
    };
    return all;
}

}  // namespace gshm::core::hostile

// Mappings, shared and private, beside read() and write().
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

constexpr size_t kPage = 4096;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

void shared(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    const auto bytes = pattern(3 * kPage, 1);
    c.make("f", bytes);
    const int fd = c.open("f", O_RDWR);
    char* memory = c.map(fd, 3 * kPage, kReadWrite, MAP_SHARED);
    if (!memory) return;
    recorder.line(fmt::format("  mapped bytes {}", std::memcmp(memory, bytes.data(), bytes.size()) == 0));
    std::memcpy(memory + kPage, "through the mapping", 19);
    c.pread(fd, 19, kPage);
    c.pwrite(fd, "through write", 2 * kPage);
    recorder.line("  mapping: " + in_quotes({memory + 2 * kPage, 13}));
    recorder.result("msync(MS_SYNC)", ::msync(memory, 3 * kPage, MS_SYNC));
    recorder.result("msync(MS_ASYNC)", ::msync(memory, 3 * kPage, MS_ASYNC));
    c.close(fd);
    std::memcpy(memory, "after close", 11);
    recorder.result("munmap", ::munmap(memory, 3 * kPage));
    c.content("f");
}

void between_processes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(kPage, '.'));
    const int fd = c.open("f", O_RDWR);
    char* memory = c.map(fd, kPage, kReadWrite, MAP_SHARED);
    if (!memory) return;
    memory[0] = 'p';
    c.in_child("a mapping of its own", [&] {
        const int own_fd = c.open("f", O_RDWR);
        char* own = c.map(own_fd, kPage, kReadWrite, MAP_SHARED);
        if (!own) return 1;
        recorder.line("  sees " + in_quotes({own, 4}));
        own[1] = 'c';
        c.pwrite(own_fd, "w", 2);
        return 0;
    });
    recorder.line("  sees " + in_quotes({memory, 4}));
    c.unlink("f");
    memory[3] = 'u';  // still shared with the file, which has no name
    c.pread(fd, 4, 0);
}

void private_ones(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(2 * kPage, '.'));
    const int fd = c.open("f", O_RDONLY);
    char* memory = c.map(fd, 2 * kPage, kReadWrite, MAP_PRIVATE);
    if (!memory) return;
    memory[0] = 'm';
    c.pread(fd, 4, 0);
    const int out = c.open("f", O_WRONLY);
    c.pwrite(out, "file", 0);
    recorder.line("  the changed page: " + in_quotes({memory, 4}));
    c.content("f");
}

void protections(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(kPage, '.'));
    const int in = c.open("f", O_RDONLY);
    const int out = c.open("f", O_WRONLY);
    const int both = c.open("f", O_RDWR);
    const int folder = c.open(".", O_RDONLY | O_DIRECTORY);
    c.map(in, kPage, PROT_READ, MAP_SHARED);
    c.map(in, kPage, kReadWrite, MAP_SHARED);
    c.map(in, kPage, kReadWrite, MAP_PRIVATE);
    c.map(out, kPage, PROT_READ, MAP_SHARED);
    c.map(out, kPage, PROT_WRITE, MAP_SHARED);
    c.map(both, kPage, PROT_NONE, MAP_SHARED);
    c.map(both, 0, PROT_READ, MAP_SHARED);
    c.map(both, kPage, PROT_READ, MAP_SHARED, 100);
    c.map(both, kPage, PROT_READ, MAP_SHARED, 1 << 20);  // beyond the end: an access would fail, the mapping does not
    c.map(folder, kPage, PROT_READ, MAP_SHARED);
    char* memory = c.map(in, kPage, PROT_READ, MAP_SHARED);
    recorder.result("mprotect beyond the descriptor", ::mprotect(memory, kPage, kReadWrite));
}

// The rest of the last page reads as zeros, and bytes written there are discarded.
void end_of_file(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(kPage + 100, 'x'));
    const int fd = c.open("f", O_RDWR);
    char* memory = c.map(fd, 2 * kPage, kReadWrite, MAP_SHARED);
    if (!memory) return;
    recorder.line("  the last page: " + in_quotes({memory + kPage, kPage}));
    memory[kPage + 200] = 'n';
    c.fstat(fd);
    c.content("f");
    c.ftruncate(fd, kPage + 50);
    recorder.line("  cut: " + in_quotes({memory + kPage, kPage}));
    c.ftruncate(fd, 2 * kPage);
    recorder.line("  grown: " + in_quotes({memory + kPage, kPage}));
    c.pwrite(fd, "grown", 2 * kPage - 5);
    recorder.line("  written: " + in_quotes({memory + kPage, kPage}));
    c.fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage + 10);
    recorder.line("  punched: " + in_quotes({memory, 2 * kPage}));
}

// An access beyond the end of the file raises SIGBUS.
void bus_errors(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(4 * kPage, 'x'));
    const int fd = c.open("f", O_RDWR);
    char* memory = c.map(fd, 6 * kPage, kReadWrite, MAP_SHARED);
    if (!memory) return;
    const auto touch = [&](const std::string& what, size_t offset, bool write) {
        c.in_child(what, [&] {
            // With this handler no sanitizer reports a crash and no core is written.
            ::signal(SIGBUS, [](int) { ::_exit(99); });
            volatile char* byte = memory + offset;
            if (write) *byte = 'w';
            else (void)*byte;
            return 0;
        });
    };
    touch("read inside", 4 * kPage - 1, false);
    touch("read beyond", 4 * kPage, false);
    touch("write beyond", 5 * kPage, true);
    touch("write inside", 3 * kPage, true);
    memory[2 * kPage] = 'p';  // the page is present before the truncation
    c.ftruncate(fd, kPage + 1);
    touch("read in the page of the end", 2 * kPage - 1, false);
    touch("read what was cut off", 2 * kPage, false);
    touch("write what was cut off", 3 * kPage, true);
    c.ftruncate(fd, 5 * kPage);
    touch("read after growing again", 4 * kPage, false);
    recorder.line("  grown again: " + in_quotes({memory + kPage, 3 * kPage}));
}

void times(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.make("f", std::string(2 * kPage, 'x'));
    const int fd = c.open("f", O_RDWR);
    char* memory = c.map(fd, 2 * kPage, kReadWrite, MAP_SHARED);
    if (!memory) return;
    c.moved("writing through a mapping", {"f"}, [&] {
        memory[0] = 'w';
        recorder.result("msync", ::msync(memory, 2 * kPage, MS_SYNC));
    });
}

constexpr Scenario kScenarios[] = {
    {"mapping_shared", shared, false},
    {"mapping_between_processes", between_processes, false},
    {"mapping_private", private_ones, false},
    {"mapping_protections", protections, false},
    {"mapping_end_of_file", end_of_file, false},
    {"mapping_bus_errors", bus_errors, false},
    {"mapping_times", times, false},
};

}  // namespace

std::span<const Scenario> mapping_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test

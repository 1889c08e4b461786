// Two processes share GPU memory through a file. The parent makes the file in a mount of gshmd and truncates it to a
// size, which allocates the memory. It reads the fabric handle from an attribute, maps the memory and writes a pattern
// with a kernel. The child finds the file, maps the same memory and checks the pattern with another kernel.
//
//   mkdir -p test_mount && gshmd ./test_mount
//   test_client --parent         # in one terminal
//   test_client --child          # in another, while the parent waits or after it has ended
//
// Without fabric handles libgshm maps the memory; without a GPU the CPU replaces the kernels. The program reports this.
// `make test-client` runs both. Exit status: 0 if the pattern was written or is correct, 1 if it is not or a step
// fails, 2 for a wrong command line.

#include <cstdint>
#include <cstdio>
#include <string>

#include "mounted_file.h"
#include "options.h"
#include "shared_words.h"
#include <gshm/gshm.hpp>

namespace {

struct Settings {
    bool parent = false;
    bool child = false;
    std::string mount = "./test_mount";
    std::string name = "test_buffer";
    std::string device;
    uint64_t size_bytes = 8 << 20;
    bool no_wait = false;

    std::string path() const { return mount + "/" + name; }
};

void wait_for_enter() {
    std::printf("Start the child now: test_client --child. Press Enter to end; the data stays.\n");
    for (int c = 0; c != '\n' && c != EOF;) c = std::getchar();
}

void run_parent(const Settings& settings) {
    std::printf("=== Parent ===\n");
    require_mount(settings.mount);
    const auto file = MountedFile::create(settings.path(), settings.device);
    std::printf("Created %s\n", file.path().c_str());
    file.truncate(settings.size_bytes);
    std::printf("Truncated it to %llu bytes\n", static_cast<unsigned long long>(settings.size_bytes));

    SharedWords words(file, true);
    words.fill();
    std::printf("Wrote %llu integers with %s\n", static_cast<unsigned long long>(words.count()), words.worker());
    if (!settings.no_wait) wait_for_enter();
}

// Returns whether all numbers are correct.
bool run_child(const Settings& settings) {
    std::printf("=== Child ===\n");
    require_mount(settings.mount);
    const auto file = MountedFile::find(settings.path());
    SharedWords words(file, false);
    const uint64_t mismatches = words.count_mismatches();
    std::printf("Checked %llu integers with %s\n", static_cast<unsigned long long>(words.count()), words.worker());
    if (mismatches == 0 && words.count() > 0) {
        std::printf("Validation PASSED\n");
        return true;
    }
    std::printf("Validation FAILED: %llu integers are wrong\n", static_cast<unsigned long long>(mismatches));
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    Options("Shares GPU memory between two processes through a file in a mount of gshmd.")
        .flag("--parent", settings.parent, "make the file and write the pattern")
        .flag("--child", settings.child, "find the file and check the pattern")
        .text("--mount", settings.mount, "where gshmd has its mount; default: " + settings.mount)
        .text("--name", settings.name, "of the file in it; default: " + settings.name)
        .bytes("--size", settings.size_bytes, "parent: of the file; default: 8M")
        .text("--device", settings.device, "parent: cuda:0, host, ...; default: the daemon's first")
        .flag("--no-wait", settings.no_wait, "parent: end at once instead of waiting for Enter")
        .parse(argc, argv);
    if (settings.parent == settings.child) {
        std::fprintf(stderr, "%s: give one of --parent and --child (see --help)\n", argv[0]);
        return 2;
    }
    if (settings.size_bytes < sizeof(uint32_t)) {
        std::fprintf(stderr, "%s: --size must be 4 or more\n", argv[0]);
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // shows each step when it is done, also through a pipe
    try {
        if (settings.child) return run_child(settings) ? 0 : 1;
        run_parent(settings);
        return 0;
    } catch (const gshm::Exception& exception) {
        std::fprintf(stderr, "test_client: %s\n", exception.what());
        return 1;
    }
}

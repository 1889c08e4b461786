#include "decide.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gshm::core::faults {
namespace {

struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool has(uintptr_t address) const { return address >= begin && address < end; }
};

struct Process {
    Control* control = nullptr;  // null: no failures in this process
    Range gshmd;
    Range sqlite;
};

// The first object is the program itself.
int note_object(dl_phdr_info* info, size_t, void* into) {
    auto* process = static_cast<Process*>(into);
    Range all{UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
        uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        all.begin = begin < all.begin ? begin : all.begin;
        all.end = begin + part.p_memsz > all.end ? begin + part.p_memsz : all.end;
    }
    if (process->gshmd.end == 0) process->gshmd = all;
    if (strstr(info->dlpi_name, "libsqlite3") != nullptr) process->sqlite = all;
    return 0;
}

Process look() {
    Process process;
    const char* path = getenv("GSHM_FAULTS");
    // Programs that gshmd starts inherit the environment.
    if (path == nullptr || strcmp(program_invocation_short_name, "gshmd") != 0) return process;
    dl_iterate_phdr(note_object, &process);
    // Direct system calls, to bypass the wrappers of this library and of a sanitizer.
    int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
    if (fd < 0) abort();
    long mapped = syscall(SYS_mmap, nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped == -1) abort();
    process.control = reinterpret_cast<Control*>(mapped);
    return process;
}

const Process& process() {
    static const Process found = look();
    return found;
}

// Initialised before main(): the initialisation makes calls itself, so it must not happen within a counted call.
[[gnu::constructor]] void look_early() {
    process();
}

}  // namespace

Caller caller_at(const void* address) {
    auto at = reinterpret_cast<uintptr_t>(address);
    if (process().gshmd.has(at)) return Caller::gshmd;
    return process().sqlite.has(at) ? Caller::sqlite : Caller::other;
}

void may_end(const char* call) {
    if (fails(Class::end, call)) kill(getpid(), SIGKILL);
}

bool fails(Class kind, const char* call) {
    if (kind == Class::system || kind == Class::sqlite) may_end(call);
    Control* control = process().control;
    if (control == nullptr || control->armed.load(std::memory_order_acquire) != static_cast<uint32_t>(kind))
        return false;
    uint64_t number = control->seen.fetch_add(1) + 1;
    uint64_t first = control->first.load();
    if (number < first || number - first >= control->count.load()) return false;
    strncpy(control->last, call, sizeof control->last - 1);
    control->failed.fetch_add(1);
    return true;
}

int system_error(const void* caller, const char* call, int error, bool interruptible) {
    switch (caller_at(caller)) {
        case Caller::gshmd:
            if (fails(Class::system, call)) return error;
            return interruptible && fails(Class::interrupted, call) ? EINTR : 0;
        case Caller::sqlite: return fails(Class::catalog, call) ? error : 0;
        case Caller::other: break;
    }
    return 0;
}

}  // namespace gshm::core::faults

// Called by the fake driver if it finds the function.
FAULTS_EXPORT int gshm_test_device_error(const char* call) {
    // Calls that release a resource never fail: gshmd could not recover the resource.
    for (const char* left : {"Release", "Free", "Unmap", "Destroy", "Unregister", "Pop", "GetError"}) {
        if (strstr(call, left) != nullptr) return 0;
    }
    if (!gshm::core::faults::fails(gshm::core::faults::Class::device, call)) return 0;
    constexpr int kOutOfMemory = 2;
    constexpr int kSystemNotReady = 802;
    bool takes = strstr(call, "Create") != nullptr || strstr(call, "Reserve") != nullptr;
    return takes ? kOutOfMemory : kSystemNotReady;
}

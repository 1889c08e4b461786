#include "io/cufile.h"

#include <csignal>
#include <dlfcn.h>
#include <sys/types.h>
#include <thread>

#include "base/log.h"

namespace gshm::core::io {
namespace {

// Maximum number of concurrent requests: each blocks a thread.
constexpr unsigned kThreads = 16;

// Declarations of cufile.h, as far as used.
struct CUfileError {
    int error;
    int cuda_error;
};
struct CUfileDescr {
    int type;
    union {
        int fd;
        void* handle;
    } handle;
    const void* fs_ops;
};
static_assert(sizeof(CUfileError) == 8 && sizeof(CUfileDescr) == 24);
constexpr int kOpaqueFd = 1;
using CUfileHandle = void*;

}  // namespace

struct CuFile::Library {
    CUfileError (*driver_open)() = nullptr;
    CUfileError (*handle_register)(CUfileHandle* handle, CUfileDescr* description) = nullptr;
    void (*handle_deregister)(CUfileHandle handle) = nullptr;
    ssize_t (*read)(CUfileHandle handle, void* memory, size_t bytes, off_t offset, off_t memory_offset) = nullptr;
    ssize_t (*write)(CUfileHandle handle, const void* memory, size_t bytes, off_t offset,
                     off_t memory_offset) = nullptr;

    static const Library* load() {
        // The library starts threads, so it is never unloaded.
        void* library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library == nullptr) return nullptr;
        auto made = std::make_unique<Library>();
        auto find = [&](auto& member, const char* name) {
            member = reinterpret_cast<std::decay_t<decltype(member)>>(dlsym(library, name));
            return member != nullptr;
        };
        const bool complete = find(made->driver_open, "cuFileDriverOpen") &&
                              find(made->handle_register, "cuFileHandleRegister") &&
                              find(made->handle_deregister, "cuFileHandleDeregister") &&
                              find(made->read, "cuFileRead") && find(made->write, "cuFileWrite");
        return complete && made->driver_open().error == 0 ? made.release() : nullptr;
    }
};

CuFile& CuFile::get() {
    static auto* made = new CuFile;
    return *made;
}

bool CuFile::is_ready(bool find_out) {
    {
        MutexLock lock(mutex_);
        if (state_ != State::unknown || !find_out) return state_ == State::ready;
        state_ = State::loading;
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { load(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return false;
}

void CuFile::wait_until_known() {
    (void)is_ready(true);
    MutexLock lock(mutex_);
    while (state_ == State::loading) lock.wait(known_);
}

void CuFile::load() {
    library_ = Library::load();
    log_debug("cuFile: {}", library_ != nullptr ? "started" : "not present");
    if (library_ != nullptr) {
        workers_.emplace(kThreads);
    }
    MutexLock lock(mutex_);
    state_ = library_ != nullptr ? State::ready : State::absent;
    known_.notify_all();
}

void CuFile::submit(Job job) {
    workers_->submit([this, job = std::move(job)]() mutable { run(job); });
}

void CuFile::run(Job& job) {
    int64_t moved = -1;
    const bool called = job.copier->with_context([&] { moved = perform(job); });
    job.done(called ? moved : -1);
}

int64_t CuFile::perform(const Job& job) {
    const Library& library = *library_;
    auto handle = job.file->attachment([&]() -> std::shared_ptr<void> {
        CUfileDescr description = {};
        description.type = kOpaqueFd;
        description.handle.fd = job.file->direct_fd();
        CUfileHandle made = nullptr;
        if (description.handle.fd < 0 || library.handle_register(&made, &description).error != 0) return nullptr;
        return {made, library.handle_deregister};
    });
    if (handle == nullptr) return -1;
    auto* memory = reinterpret_cast<void*>(job.address);
    const auto offset = static_cast<off_t>(job.offset);
    return job.is_write ? library.write(handle.get(), memory, job.bytes, offset, 0)
                        : library.read(handle.get(), memory, job.bytes, offset, 0);
}

CuFile::Way CuFile::choose(uint64_t place, bool is_write) {
    MutexLock lock(mutex_);
    auto [found, is_new] = ways_.try_emplace({place, is_write}, Way::measure);
    if (is_new) return Way::measure;
    return found->second == Way::measure ? Way::staging : found->second;
}

// Requires a margin: staging is the proven way.
void CuFile::measured(uint64_t place, bool is_write, uint64_t staged_ns, uint64_t cufile_ns) {
    const bool faster = cufile_ns * 20 < staged_ns * 19;
    log_info("{} at {:#x}: {} us through staging memory, {} us by cuFile", is_write ? "writing" : "reading", place,
             staged_ns / 1000, cufile_ns / 1000);
    MutexLock lock(mutex_);
    auto& way = ways_[{place, is_write}];
    if (way == Way::measure) way = faster ? Way::cufile : Way::staging;
}

void CuFile::failed(uint64_t place, bool is_write) {
    MutexLock lock(mutex_);
    ways_[{place, is_write}] = Way::staging;
}

void CuFile::abandoned(uint64_t place, bool is_write) {
    MutexLock lock(mutex_);
    auto found = ways_.find({place, is_write});
    if (found != ways_.end() && found->second == Way::measure) ways_.erase(found);
}

}  // namespace gshm::core::io

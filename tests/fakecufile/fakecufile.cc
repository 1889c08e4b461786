// A test double of NVIDIA's libcufile.so.0: reads and writes use a buffer and the loaded driver, which is
// tests/fakecuda. It contains nothing of NVIDIA. Environment:
//   FAKECUFILE_DELAY_US    additional time of each read and write
//   FAKECUFILE_FAIL        open, register, read or short (half of the request): the call that fails
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

namespace {

struct Error {
    int error;
    int cuda_error;
};
struct Description {
    int type;
    union {
        int fd;
        void* handle;
    } handle;
    const void* fs_ops;
};
struct Handle {
    int fd;
};

constexpr Error kSuccess = {0, 0};
constexpr Error kNotSupported = {5011, 0};

bool fails(const char* what) {
    const char* wanted = getenv("FAKECUFILE_FAIL");
    return wanted != nullptr && strcmp(wanted, what) == 0;
}

void take_time() {
    if (const char* delay = getenv("FAKECUFILE_DELAY_US")) usleep(static_cast<useconds_t>(atoi(delay)));
}

template <typename Call>
Call driver(const char* name) {
    return reinterpret_cast<Call>(dlsym(RTLD_DEFAULT, name));
}

// On the legacy stream, and done when it returns.
bool copy_in(unsigned long long to, const void* from, size_t bytes) {
    using Copy = int (*)(unsigned long long, const void*, size_t, void*);
    return driver<Copy>("cuMemcpyHtoDAsync_v2")(to, from, bytes, nullptr) == 0;
}
bool copy_out(void* to, unsigned long long from, size_t bytes) {
    using Copy = int (*)(void*, unsigned long long, size_t, void*);
    return driver<Copy>("cuMemcpyDtoHAsync_v2")(to, from, bytes, nullptr) == 0;
}

// O_DIRECT wants it aligned.
class Buffer {
public:
    explicit Buffer(size_t bytes) { (void)!posix_memalign(&memory_, 4096, bytes); }
    ~Buffer() { free(memory_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* get() const { return memory_; }

private:
    void* memory_ = nullptr;
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Error cuFileDriverOpen() {
    return fails("open") ? kNotSupported : kSuccess;
}

EXPORT Error cuFileHandleRegister(void** handle, Description* description) {
    if (fails("register") || description->type != 1) return kNotSupported;
    *handle = new Handle{description->handle.fd};
    return kSuccess;
}

EXPORT void cuFileHandleDeregister(void* handle) {
    delete static_cast<Handle*>(handle);
}

EXPORT ssize_t cuFileRead(void* handle, void* memory, size_t bytes, off_t offset, off_t memory_offset) {
    if (fails("read")) return -5;
    if (fails("short")) bytes = bytes / 2 / 4096 * 4096;
    take_time();
    Buffer buffer(bytes);
    const ssize_t got = pread(static_cast<Handle*>(handle)->fd, buffer.get(), bytes, offset);
    if (got <= 0) return got;
    const auto to = reinterpret_cast<unsigned long long>(memory) + static_cast<unsigned long long>(memory_offset);
    return copy_in(to, buffer.get(), static_cast<size_t>(got)) ? got : -5;
}

EXPORT ssize_t cuFileWrite(void* handle, const void* memory, size_t bytes, off_t offset, off_t memory_offset) {
    if (fails("read")) return -5;
    if (fails("short")) bytes = bytes / 2 / 4096 * 4096;
    take_time();
    Buffer buffer(bytes);
    const auto from = reinterpret_cast<unsigned long long>(memory) + static_cast<unsigned long long>(memory_offset);
    if (!copy_out(buffer.get(), from, bytes)) return -5;
    return pwrite(static_cast<Handle*>(handle)->fd, buffer.get(), bytes, offset);
}

/* Support for the usrbio examples: GPU memory as a framework allocates it, and checks of its contents. With
 * GSHM_USRBIO_DEVICE=host it is ordinary memory. The driver is loaded at run time, so the build needs no CUDA. */
#ifndef GSHM_EXAMPLES_USRBIO_SUPPORT_H
#define GSHM_EXAMPLES_USRBIO_SUPPORT_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int gpu_is_host(void) {
    const char* device = getenv("GSHM_USRBIO_DEVICE");
    return device != NULL && strcmp(device, "host") == 0;
}

static inline void die(const char* what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

typedef int (*driver_call)();
static inline driver_call driver(const char* name) {
    static void* library;
    if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
    driver_call call = NULL;
    if (library != NULL) *(void**)&call = dlsym(library, name);
    if (call == NULL) die(name);
    return call;
}

/* Makes the primary context of the first GPU current. */
static inline void start_gpu(void) {
    void* context = NULL;
    int (*init)(unsigned) = (int (*)(unsigned))driver("cuInit");
    int (*retain)(void**, int) = (int (*)(void**, int))driver("cuDevicePrimaryCtxRetain");
    int (*push)(void*) = (int (*)(void*))driver("cuCtxPushCurrent_v2");
    if (init(0) != 0 || retain(&context, 0) != 0 || push(context) != 0) die("CUDA does not start");
}

static inline void* gpu_malloc(size_t bytes) {
    if (gpu_is_host()) return malloc(bytes);
    unsigned long long pointer = 0;
    start_gpu();
    int (*allocate)(unsigned long long*, size_t) = (int (*)(unsigned long long*, size_t))driver("cuMemAlloc_v2");
    if (allocate(&pointer, bytes) != 0) die("the GPU has no memory left");
    return (void*)(uintptr_t)pointer;
}

static inline void copy_from_gpu(void* to, const void* gpu, size_t bytes) {
    if (gpu_is_host()) {
        memcpy(to, gpu, bytes);
        return;
    }
    start_gpu();
    int (*copy)(void*, unsigned long long, size_t, void*) =
        (int (*)(void*, unsigned long long, size_t, void*))driver("cuMemcpyDtoHAsync_v2");
    int (*wait)(void*) = (int (*)(void*))driver("cuStreamSynchronize");
    if (copy(to, (uintptr_t)gpu, bytes, NULL) != 0 || wait(NULL) != 0) die("cannot copy from the GPU");
}

/* Ends the program unless the GPU memory has the bytes of the file. */
static inline void expect_bytes_of(const char* path, size_t offset, const void* gpu, size_t bytes) {
    char* expected = malloc(bytes);
    char* found = malloc(bytes);
    int fd = open(path, O_RDONLY);
    if (pread(fd, expected, bytes, (off_t)offset) != (ssize_t)bytes) die("cannot read the file");
    copy_from_gpu(found, gpu, bytes);
    if (memcmp(expected, found, bytes) != 0) die("the GPU has other bytes than the file");
    close(fd);
    free(expected);
    free(found);
    printf("%zu bytes are there\n", bytes);
}

static inline void generate_uuid(uint8_t uuid[16]) {
    if (getrandom(uuid, 16, 0) != 16) die("no random bytes");
}

#endif

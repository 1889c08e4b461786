// No exception leaves the library: every allocation of a call fails once, and the call returns -ENOMEM. (An exception
// that left it would end this program, since the functions are noexcept.) The client works as before afterwards.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <unistd.h>

#include <gshm/gshm.h>

struct DLManagedTensor {
    char tensor[48];
    void* manager_ctx;
    void (*deleter)(DLManagedTensor*);
};

namespace {

thread_local long allocations_left = -1;  // negative: all succeed

int failures = 0;
gshm_client* client = nullptr;
gshm_object* object = nullptr;

void check(bool good, const char* what, long allocation, int status) {
    if (good) return;
    ++failures;
    std::fprintf(stderr, "%s, allocation %ld: %d (%s)\n", what, allocation, status, gshm_last_error());
}

// The call, with its first allocation failing, then its second, and so on until none fails.
void exhaust(const char* what, const std::function<int()>& call) {
    for (long allocation = 0;; ++allocation) {
        allocations_left = allocation;
        const int status = call();
        const bool failed = allocations_left < 0;
        allocations_left = -1;
        if (!failed) {
            check(status == 0, what, allocation, status);
            check(allocation > 0, what, allocation, 0);
            return;
        }
        check(status == -ENOMEM || status == 0, what, allocation, status);
        if (status != 0) check(gshm_last_error()[0] != '\0', what, allocation, status);
        check(gshm_ping(client) == 0, "ping", allocation, status);
    }
}

template <typename Handle>
int freed(int status, Handle* handle, void (*free)(Handle*)) {
    free(handle);
    return status;
}

// A file of one tensor. Returns its path.
std::string write_tensors(const gshm_tensor_info& tensor) {
    gshm_tensors* table = nullptr;
    gshm_tensors_layout(&tensor, 1, nullptr, 0, GSHM_LAYOUT_FILE, &table);
    size_t bytes = 0;
    const void* header = gshm_tensors_header(table, 0, &bytes);
    std::string path = "/tmp/gshm-no-memory-XXXXXX";
    const int fd = mkstemp(path.data());
    const bool written = write(fd, header, bytes) == static_cast<ssize_t>(bytes) && write(fd, "x", 1) == 1;
    check(written, "a file of tensors", 0, 0);
    close(fd);
    gshm_tensors_free(table);
    return path;
}

}  // namespace

void* operator new(size_t bytes) {
    if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
    void* memory = std::malloc(bytes > 0 ? bytes : 1);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

int main() {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = std::getenv("GSHM_TEST_DIR");
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = "folder/a-name-that-is-too-long-for-the-small-buffer-of-a-string";
    spec.size_bytes = 64;
    spec.flags = GSHM_CREATE_KEEP | GSHM_CREATE_NO_MAP;
    if (gshm_connect(&options, &client) != 0 || gshm_create(client, &spec, &object) != 0) {
        std::fprintf(stderr, "%s\n", gshm_last_error());
        return 1;
    }
    exhaust("gshm_connect", [&] {
        gshm_client* made = nullptr;
        return freed(gshm_connect(&options, &made), made, gshm_disconnect);
    });
    exhaust("gshm_open", [&] {
        gshm_object* made = nullptr;
        return freed(gshm_open(client, spec.name, GSHM_OPEN_NO_MAP, &made), made, gshm_close);
    });
    exhaust("gshm_stat", [&] {
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        return gshm_stat(client, spec.name, &info);
    });
    exhaust("gshm_list", [&] {
        gshm_listing* listing = nullptr;
        return freed(gshm_list(client, "", GSHM_LIST_RECURSIVE, &listing), listing, gshm_listing_free);
    });
    exhaust("gshm_set_attributes", [&] {
        const gshm_attribute attribute = {"a-name-that-is-too-long-for-the-small-buffer", "value", 5};
        int status = 0;
        return gshm_set_attributes(client, spec.name, &attribute, 1, &status);
    });
    exhaust("gshm_get_attributes", [&] {
        gshm_attribute_list* list = nullptr;
        return freed(gshm_get_attributes(client, spec.name, nullptr, 0, &list), list, gshm_attribute_list_free);
    });
    exhaust("gshm_allocate", [&] {
        gshm_object* made = nullptr;
        return freed(gshm_allocate("host", 64, 0, &made), made, gshm_close);
    });
    gshm_object* memory = nullptr;
    check(gshm_allocate("host", 64, 0, &memory) == 0, "gshm_allocate", 0, 0);
    exhaust("gshm_dlpack", [&] {
        const int64_t shape[2] = {8, 8};
        gshm_tensor_spec tensor_spec = GSHM_TENSOR_SPEC_INIT;
        tensor_spec.shape = shape;
        tensor_spec.dimensions = 2;
        DLManagedTensor* made = nullptr;
        const int status = gshm_dlpack(memory, &tensor_spec, &made);
        if (made != nullptr) made->deleter(made);
        return status;
    });
    exhaust("gshm_clone", [&] {
        gshm_object* made = nullptr;
        return freed(gshm_clone(memory, 0, 64, &made), made, gshm_close);
    });
    gshm_close(memory);
    gshm_tensor_info tensor = GSHM_TENSOR_INFO_INIT;
    tensor.name = "a";
    tensor.dtype = "U8";
    exhaust("gshm_tensors_layout", [&] {
        gshm_tensors* table = nullptr;
        return freed(gshm_tensors_layout(&tensor, 1, nullptr, 0, GSHM_LAYOUT_FILE, &table), table, gshm_tensors_free);
    });
    const std::string path = write_tensors(tensor);
    exhaust("gshm_tensors_of_path", [&] {
        gshm_tensors* table = nullptr;
        return freed(gshm_tensors_of_path(path.c_str(), &table), table, gshm_tensors_free);
    });
    gshm_load_spec load_spec = GSHM_LOAD_SPEC_INIT;
    load_spec.path = path.c_str();
    load_spec.name = "no-memory/model";
    for (const char* what : {"gshm_load", "gshm_load of a loaded file"}) {
        exhaust(what, [&] {
            gshm_model* model = nullptr;
            return freed(gshm_load(client, &load_spec, &model), model, gshm_model_close);
        });
    }
    gshm_unlink(client, load_spec.name);
    std::remove(path.c_str());
    exhaust("gshm_seal", [&] { return gshm_seal(object); });
    gshm_close(object);
    gshm_unlink(client, spec.name);
    gshm_disconnect(client);
    return failures == 0 ? 0 : 1;
}

#include "roles.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <unistd.h>

#include "gpu.h"

namespace gshm::core::test {
namespace {

using Arguments = std::vector<std::string>;

// Ends the role: an expectation failed.
int failed(const std::string& what) {
    std::printf("%s (last error: %s)\n", what.c_str(), gshm_last_error());
    return 1;
}

uint64_t number(const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 10);
}

// Compares an open object with its pattern: by gshm_copy_out(), and through the pointer.
int compare(gshm_object* object, const std::string& gpu, unsigned seed) {
    const auto expected = pattern(gshm_size(object), seed);
    if (copy_of(object) != expected) return failed("gshm_copy_out gives other bytes");
    std::vector<std::byte> bytes(expected.size());
    if (gshm_data(object) == nullptr) return failed("there is no pointer");
    const Gpu device(gpu);
    if (auto result = device.read(gshm_data(object), bytes)) return failed("cuMemcpyDtoH: " + device.describe(result));
    if (bytes != expected) return failed("the pointer leads to other bytes");
    std::printf("%zu bytes are right\n", expected.size());
    return 0;
}

// DIR NAME GPU SEED: opens an object and compares its bytes.
int read(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    const auto object = open_object(client.get(), arguments[1]);
    if (!object) return failed("open " + arguments[1]);
    return compare(object.get(), arguments[2], static_cast<unsigned>(number(arguments[3])));
}

// DIR ID OFFSET BYTES GPU SEED: opens pool memory of another process and compares a range of it.
int read_piece(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    gshm_object* opened = nullptr;
    if (gshm_open_id(client.get(), number(arguments[1]), 0, &opened) != 0) return failed("open " + arguments[1]);
    const Object object(opened);
    const auto expected = pattern(number(arguments[3]), static_cast<unsigned>(number(arguments[5])));
    std::vector<std::byte> bytes(expected.size());
    const Gpu device(arguments[4]);
    const auto* at = static_cast<const std::byte*>(gshm_data(object.get())) + number(arguments[2]);
    if (auto result = device.read(at, bytes)) return failed("cuMemcpyDtoH: " + device.describe(result));
    if (bytes != expected) return failed("the pointer leads to other bytes");
    return 0;
}

// DIR NAME GPU BYTES SEED seal|hold: creates an object with a pattern; then seals it and ends, or holds it unsealed.
int write(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = arguments[1].c_str();
    spec.device = arguments[2].c_str();
    spec.size_bytes = number(arguments[3]);
    gshm_object* made = nullptr;
    if (gshm_create(client.get(), &spec, &made) != 0) return failed("create");
    const Object object(made);
    const auto data = pattern(spec.size_bytes, static_cast<unsigned>(number(arguments[4])));
    if (gshm_copy_in(made, 0, data.data(), data.size()) != 0) return failed("copy in");
    if (arguments[5] == "seal") return gshm_seal(made) == 0 ? 0 : failed("seal");
    gshm_create_spec done = GSHM_CREATE_SPEC_INIT;  // a second object signals that the bytes are written
    const std::string name = arguments[1] + ".written";
    done.name = name.c_str();
    done.size_bytes = 1;
    gshm_object* sign = nullptr;
    if (gshm_create(client.get(), &done, &sign) != 0) return failed("create of the sign");
    for (;;) pause();
}

// DIR NAME: opens an object and holds it.
int hold(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    const auto object = open_object(client.get(), arguments[1]);
    if (!object) return failed("open");
    for (;;) pause();
}

// DIR PREFIX GPU COUNT: opens PREFIX0, PREFIX1, ... by one call; each begins with its number.
int read_batch(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    std::vector<std::string> names;
    std::vector<const char*> pointers;
    for (uint64_t i = 0; i < number(arguments[3]); ++i) names.push_back(arguments[1] + std::to_string(i));
    for (const auto& name : names) pointers.push_back(name.c_str());
    std::vector<gshm_object*> objects(names.size());
    std::vector<int> status(names.size());
    if (gshm_open_batch(client.get(), pointers.data(), names.size(), 0, objects.data(), status.data()) != 0) {
        return failed("open_batch");
    }
    const Gpu gpu(arguments[2]);
    std::vector<std::byte> bytes(sizeof(uint32_t));
    for (uint32_t i = 0; i < objects.size(); ++i) {
        uint32_t found = ~i;
        if (auto result = gpu.read(gshm_data(objects[i]), bytes)) return failed(names[i] + ": " + gpu.describe(result));
        std::memcpy(&found, bytes.data(), sizeof found);
        if (found != i) return failed(names[i] + " begins with " + std::to_string(found));
    }
    gshm_close_batch(objects.data(), objects.size());
    return 0;
}

gshm_handle_info handle_info(const Arguments& arguments, size_t at) {
    gshm_handle_info info = {};
    info.struct_size = sizeof info;
    info.kind = static_cast<uint32_t>(number(arguments[at]));
    info.extent_bytes = number(arguments[at + 1]);
    info.offset = number(arguments[at + 2]);
    info.size_bytes = number(arguments[at + 3]);
    return info;
}

// GPU FD SEED INFO...: imports an inherited descriptor and compares its bytes.
int import_fd(const Arguments& arguments) {
    const auto info = handle_info(arguments, 3);
    gshm_object* made = nullptr;
    if (gshm_import_fd(arguments[0].c_str(), std::atoi(arguments[1].c_str()), &info, 0, &made) != 0) {
        return failed("import");
    }
    return compare(Object(made).get(), arguments[0], static_cast<unsigned>(number(arguments[2])));
}

// GPU HANDLE-IN-HEX SEED INFO...: the same with a handle of 64 bytes.
int import_bytes(const Arguments& arguments,
                 int (*import)(const char*, const uint8_t*, const gshm_handle_info*, uint32_t, gshm_object**)) {
    const auto info = handle_info(arguments, 3);
    uint8_t handle[GSHM_FABRIC_HANDLE_BYTES] = {};
    for (size_t i = 0; i < sizeof handle; ++i) {
        handle[i] = static_cast<uint8_t>(std::strtoul(arguments[1].substr(2 * i, 2).c_str(), nullptr, 16));
    }
    gshm_object* made = nullptr;
    if (import(arguments[0].c_str(), handle, &info, 0, &made) != 0) return failed("import");
    return compare(Object(made).get(), arguments[0], static_cast<unsigned>(number(arguments[2])));
}
int import_fabric(const Arguments& arguments) {
    return import_bytes(arguments, gshm_import_fabric);
}
int import_ipc(const Arguments& arguments) {
    return import_bytes(arguments, gshm_import_ipc);
}

// DIR NAME GPU copy|kernel: bypasses the library and writes to memory opened for reading. Prints the result; both
// outcomes are acceptable. A separate process, since the context may be lost afterwards.
int write_to_read_only(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    const auto object = open_object(client.get(), arguments[1]);
    if (!object) return failed("open");
    const Gpu gpu(arguments[2]);
    std::string outcome;
    if (arguments[3] == "kernel") outcome = gpu.add_one(gshm_data(object.get()), 4);
    else if (auto result = gpu.write(gshm_data(object.get()), pattern(16, 99))) outcome = gpu.describe(result);
    std::printf("%s\n", outcome.empty() ? "goes through" : outcome.c_str());
    std::fflush(stdout);
    _exit(0);  // destructors would use the lost context
}

bool has_libcuda() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("libcuda.so") != std::string::npos) return true;
    }
    return false;
}

// DIR NAME GPU: checks when the library starts CUDA, and that it does not change the caller's current context.
int watch_context(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    {
        const auto unmapped = open_object(client.get(), arguments[1], GSHM_NO_MAP);
        if (!unmapped || copy_of(unmapped.get()).empty()) return failed("open without a map");
    }
    if (has_libcuda()) return failed("libcuda is loaded, though no pointer was asked for");
    const Gpu gpu(arguments[2]);  // loads the driver
    if (gpu.primary_context_is_active()) return failed("a context, though no pointer was asked for");
    const auto object = open_object(client.get(), arguments[1]);
    if (!object) return failed("open");
    if (!gpu.primary_context_is_active()) return failed("the primary context is not active after an open");
    cuda::CUcontext current = nullptr;
    if (gpu.driver().ctx_pop(&current) == cuda::kSuccess) return failed("a context was left current");
    return copy_of(object.get()).empty() ? failed("copy") : 0;
}

// DIR NAME: the GPU is hidden from this process (CUDA_VISIBLE_DEVICES). Copies through the daemon still work.
int be_blind(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    gshm_object* object = nullptr;
    const int code = gshm_open(client.get(), arguments[1].c_str(), 0, &object);
    if (code != -ENODEV) return failed("open of what this process cannot see gave " + std::to_string(code));
    std::printf("%s\n", gshm_last_error());
    const auto unmapped = open_object(client.get(), arguments[1], GSHM_NO_MAP);
    return unmapped && !copy_of(unmapped.get()).empty() ? 0 : failed("copy through the daemon");
}

// DIR NAME GPU MILLISECONDS VALUE: fills the object on a stream that is busy for that long, publishes at once, and
// stays until it is killed.
int publish(const Arguments& arguments) {
    const auto client = connect_to(arguments[0]);
    if (!client) return failed("connect");
    const auto object = open_object(client.get(), arguments[1], GSHM_WRITE);
    if (!object) return failed("open");
    gshm_fence* fence = nullptr;
    if (gshm_fence_open(object.get(), GSHM_WRITE, &fence) != 0) return failed("fence");
    const Gpu gpu(arguments[2]);
    const cuda::ScopedContext current(gpu.driver(), gpu.context());
    cuda::CUstream stream = nullptr;
    if (gpu.driver().stream_create(&stream, cuda::kStreamNonBlocking)) return failed("stream");
    if (auto why = gpu.spin(stream, std::chrono::milliseconds(number(arguments[3]))); !why.empty()) return failed(why);
    const auto memory = reinterpret_cast<cuda::CUdeviceptr>(gshm_data(object.get()));
    const auto value = static_cast<unsigned char>(number(arguments[4]));
    if (gpu.driver().memset_d8_async(memory, value, gshm_size(object.get()), stream)) return failed("memset");
    if (gshm_fence_publish(fence, stream, nullptr) != 0) return failed("publish");
    for (;;) pause();
}

struct Role {
    size_t arguments;
    int (*play)(const Arguments&);
};
const std::map<std::string, Role> kRoles = {
    {"read", {4, read}},
    {"read_piece", {6, read_piece}},
    {"write", {6, write}},
    {"hold", {2, hold}},
    {"read_batch", {4, read_batch}},
    {"import_fd", {7, import_fd}},
    {"import_fabric", {7, import_fabric}},
    {"import_ipc", {7, import_ipc}},
    {"write_to_read_only", {4, write_to_read_only}},
    {"watch_context", {3, watch_context}},
    {"be_blind", {2, be_blind}},
    {"publish", {5, publish}},
};

}  // namespace

int play_role(const std::vector<std::string>& arguments) {
    const auto found = arguments.empty() ? kRoles.end() : kRoles.find(arguments[0]);
    if (found == kRoles.end() || arguments.size() != 1 + found->second.arguments) return failed("no such part");
    return found->second.play({arguments.begin() + 1, arguments.end()});
}

std::vector<std::string> role(const std::string& name, const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(), "--role", name};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

RunResult run_role(const std::string& name, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& env) {
    ChildProcess child;
    if (!child.spawn(role(name, arguments), env)) return {};
    return child.finish({}, std::chrono::minutes(10));
}

std::string to_hex(const uint8_t* handle) {
    std::string hex;
    for (size_t i = 0; i < GSHM_FABRIC_HANDLE_BYTES; ++i) {
        hex += "0123456789abcdef"[handle[i] >> 4];
        hex += "0123456789abcdef"[handle[i] & 15];
    }
    return hex;
}

std::vector<std::string> to_arguments(const gshm_handle_info& info) {
    return {std::to_string(info.kind), std::to_string(info.extent_bytes), std::to_string(info.offset),
            std::to_string(info.size_bytes)};
}

}  // namespace gshm::core::test

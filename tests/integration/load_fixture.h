// Files of tensors, and processes that load them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "gshm/gshm.h"
#include "integration/survival_fixture.h"

namespace gshm::core::test {

struct ModelCloser {
    void operator()(gshm_model* model) const { gshm_model_close(model); }
};
using Model = std::unique_ptr<gshm_model, ModelCloser>;

struct TestTensor {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    std::string bytes;
};

inline uint64_t element_bytes(const std::string& dtype) {
    return dtype == "U8" || dtype == "I8" ? 1 : dtype == "F16" || dtype == "BF16" ? 2 : dtype == "I64" ? 8 : 4;
}

inline TestTensor make_tensor(std::string name, std::string dtype, std::vector<uint64_t> shape, uint64_t seed) {
    uint64_t bytes = element_bytes(dtype);
    for (const uint64_t dimension : shape) bytes *= dimension;
    return {std::move(name), std::move(dtype), std::move(shape), pattern(bytes, seed)};
}

// The bytes of a safetensors file, in the given order; the header ends at a multiple of 8, as the original's does.
inline std::string file_bytes(const std::vector<TestTensor>& tensors, const std::string& metadata = {}) {
    std::string json = metadata.empty() ? "" : "\"__metadata__\":" + metadata;
    std::string data;
    for (const auto& tensor : tensors) {
        std::string shape;
        for (const uint64_t dimension : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
        json += (json.empty() ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" +
                shape + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                std::to_string(data.size() + tensor.bytes.size()) + "]}";
        data += tensor.bytes;
    }
    json = "{" + json + "}";
    json.append((8 - json.size() % 8) % 8, ' ');
    const uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
}

// The slice of a tensor, one element at a time.
inline std::string reference_slice(const TestTensor& tensor, size_t dimension, uint64_t begin, uint64_t end) {
    const uint64_t size = element_bytes(tensor.dtype);
    uint64_t inner = 1;
    for (size_t i = dimension + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
    std::string slice;
    for (uint64_t i = 0; i < tensor.bytes.size() / size; ++i) {
        const uint64_t position = i / inner % tensor.shape[dimension];
        if (position >= begin && position < end) slice += tensor.bytes.substr(i * size, size);
    }
    return slice;
}

class LoadTest : public LibrarySurvivalTest {
protected:
    std::string path(const std::string& name) const { return scratch() + "/" + name; }
    std::string write_file(const std::string& name, std::string_view bytes) const {
        std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
        std::ofstream(path(name), std::ios::binary) << bytes;
        return path(name);
    }
    static std::vector<TestTensor> some_tensors(uint64_t seed) {
        return {make_tensor("layers.0.w", "BF16", {33, 129}, seed), make_tensor("layers.0.b", "F32", {7}, seed + 1),
                make_tensor("one", "I64", {}, seed + 2), make_tensor("none", "U8", {3, 0}, seed + 3),
                make_tensor("layers.1.w", "F32", {64, 64}, seed + 4)};
    }
    // Takes several ranges to read.
    static std::vector<TestTensor> large_tensors(uint64_t seed) {
        return {make_tensor("a", "U8", {20 << 20}, seed), make_tensor("odd", "U8", {5}, seed + 1),
                make_tensor("b", "U8", {20 << 20}, seed + 2)};
    }
    static uint64_t bytes_of(const std::vector<TestTensor>& tensors) {
        uint64_t bytes = 0;
        for (const auto& tensor : tensors) bytes += tensor.bytes.size();
        return bytes;
    }

    struct Options {
        const char* name = nullptr;
        const char* device = "host";
        uint32_t flags = 0;
        std::vector<gshm_tensor_choice> choices = {};
        std::function<int(uint64_t, uint64_t)> progress = {};
        int timeout_ms = -1;
        uint32_t mode = 0;
    };
    static gshm_tensor_choice choice(const char* name, const char* device = nullptr, int dimension = -1,
                                     uint64_t begin = 0, uint64_t end = 0) {
        return {sizeof(gshm_tensor_choice), dimension, name, device, begin, end};
    }
    static int load_code(gshm_client* client, const std::string& from, const Options& options, Model& ret_model) {
        gshm_load_spec spec = GSHM_LOAD_SPEC_INIT;
        spec.path = from.c_str();
        spec.name = options.name;
        spec.device = options.device;
        spec.flags = options.flags;
        spec.choices = options.choices.empty() ? nullptr : options.choices.data();
        spec.choice_count = options.choices.size();
        spec.timeout_ms = options.timeout_ms;
        spec.mode = options.mode;
        if (options.progress) {
            spec.progress = [](void* context, uint64_t done, uint64_t total) {
                return (*static_cast<const std::function<int(uint64_t, uint64_t)>*>(context))(done, total);
            };
            spec.context = const_cast<std::function<int(uint64_t, uint64_t)>*>(&options.progress);
        }
        gshm_model* model = nullptr;
        const int code = gshm_load(client, &spec, &model);
        ret_model.reset(model);
        return code;
    }
    static Model load(gshm_client* client, const std::string& from, const Options& options) {
        Model model;
        EXPECT_EQ(load_code(client, from, options, model), 0) << gshm_last_error();
        return model;
    }
    static gshm_model_part part(const Model& model, size_t index = 0) {
        gshm_model_part found = GSHM_MODEL_PART_INIT;
        EXPECT_EQ(gshm_model_get_part(model.get(), index, &found), 0) << gshm_last_error();
        return found;
    }
    static bool is_shared(const gshm_model_part& part) { return (part.flags & GSHM_PART_SHARED) != 0; }

    struct Loaded {
        std::string dtype;
        std::vector<uint64_t> shape;
        uint64_t offset = 0;
        std::string bytes;
    };
    static std::optional<Loaded> find(const gshm_model_part& part, const std::string& name) {
        size_t index = 0;
        if (gshm_tensors_find(part.tensors, name.c_str(), &index) != 0) return std::nullopt;
        gshm_tensor_info info = GSHM_TENSOR_INFO_INIT;
        size_t count = 0;
        EXPECT_EQ(gshm_tensors_get(part.tensors, index, &info, 1, &count), 0);
        EXPECT_EQ(count, 1u);
        Loaded loaded{
            info.dtype, {info.shape, info.shape + info.dimensions}, info.offset, std::string(info.bytes, '\0')};
        EXPECT_EQ(gshm_copy_out(part.object, info.offset, loaded.bytes.data(), info.bytes), 0) << gshm_last_error();
        return loaded;
    }
    // What differs; "" if nothing.
    static std::string difference(const gshm_model_part& part, const std::vector<TestTensor>& tensors) {
        if (gshm_tensors_count(part.tensors) != tensors.size()) return "another number of tensors";
        for (const auto& tensor : tensors) {
            const auto loaded = find(part, tensor.name);
            if (!loaded) return tensor.name + " is missing";
            if (loaded->offset % GSHM_TENSORS_ALIGNMENT != 0) return tensor.name + " is not aligned";
            if (loaded->dtype != tensor.dtype || loaded->shape != tensor.shape)
                return tensor.name + " has another type";
            if (loaded->bytes != tensor.bytes) return tensor.name + " has other bytes";
        }
        return {};
    }
    // The names of all objects.
    std::set<std::string> names(gshm_client* client) {
        std::set<std::string> found;
        gshm_listing* listing = nullptr;
        EXPECT_EQ(gshm_list(client, "", GSHM_LIST_RECURSIVE, &listing), 0) << gshm_last_error();
        for (size_t i = 0; i < gshm_listing_count(listing); ++i) found.insert(gshm_listing_name(listing, i));
        gshm_listing_free(listing);
        return found;
    }

    // A process of its own, which reports by a pipe. It has no handle of this one.
    class Process {
    public:
        Process(const std::function<int(Process&)>& body, uid_t uid = 0) {
            EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
            pid_ = fork();
            if (pid_ == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(99);
                _exit(body(*this));
            }
            close(std::exchange(ends_[1], -1));
        }
        ~Process() {
            kill();
            close(ends_[0]);
        }
        Process(const Process&) = delete;
        Process& operator=(const Process&) = delete;
        // In the process.
        void tell(uint64_t number) { EXPECT_EQ(write(ends_[1], &number, sizeof number), ssize_t{sizeof number}); }
        // Waits for the next number; nothing if the process has ended.
        std::optional<uint64_t> hear() {
            uint64_t number = 0;
            if (read(ends_[0], &number, sizeof number) != sizeof number) return std::nullopt;
            return number;
        }
        // After SIGSTOP.
        void go_on() {
            int status = 0;
            EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
            EXPECT_TRUE(WIFSTOPPED(status));
            EXPECT_EQ(::kill(pid_, SIGCONT), 0);
        }
        void kill() {
            if (pid_ > 0) ::kill(pid_, SIGKILL);
            wait();
        }
        int wait() {
            if (pid_ <= 0) return -1;
            int status = 0;
            waitpid(std::exchange(pid_, -1), &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }

    private:
        pid_t pid_ = -1;
        int ends_[2] = {-1, -1};
    };
};

}  // namespace gshm::core::test

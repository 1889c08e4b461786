// Tensors for C++20: safetensors files as objects; conventions as in gshm.hpp, contracts in gshm.h.
//
//   auto model = gshm::Model::load(client, {.path = "llama/", .device = "cuda:0"}).value();
//   for (const auto& part : model.parts())
//       for (const auto& tensor : part.tensors)
//           use(tensor.name, tensor.dtype, tensor.shape, static_cast<std::byte*>(gshm_data(part.object)) + tensor.offset);
#ifndef GSHM_TENSORS_HPP
#define GSHM_TENSORS_HPP

#include <gshm/gshm.hpp>

namespace gshm {
inline namespace v0 {

struct TensorInfo {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    uint64_t offset = 0;  // of the first byte, from the beginning of the file or object
    uint64_t bytes = 0;
    size_t file = 0;  // index of the file in the table
};

namespace detail {

inline Result<std::vector<TensorInfo>> tensor_list(const gshm_tensors* handle) {
    std::vector<gshm_tensor_info> infos(gshm_tensors_count(handle), sized<gshm_tensor_info>());
    auto done = call({}, [&] { return gshm_tensors_get(handle, 0, infos.data(), infos.size(), nullptr); });
    if (!done) return std::move(done).error();
    std::vector<TensorInfo> list;
    list.reserve(infos.size());
    for (const auto& info : infos) {
        list.push_back(
            {info.name, info.dtype, {info.shape, info.shape + info.dimensions}, info.offset, info.bytes, info.file});
    }
    return list;
}

}  // namespace detail

// A table of tensors.
class Tensors {
public:
    Tensors() = default;
    // A file or a folder.
    static Result<Tensors> of_path(const std::string& path) {
        return make({path}, [&](gshm_tensors** ret) { return gshm_tensors_of_path(path.c_str(), ret); });
    }
    static Result<Tensors> of_object(const Object& object) {
        return make({}, [&](gshm_tensors** ret) { return gshm_tensors_of_object(object.get(), ret); });
    }
    static Tensors adopt(gshm_tensors* handle) noexcept { return Tensors(handle); }  // takes ownership
    [[nodiscard]] gshm_tensors* take() noexcept { return handle_.release(); }        // gives up ownership
    gshm_tensors* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    size_t size() const noexcept { return gshm_tensors_count(get()); }
    Result<std::vector<TensorInfo>> list() const { return detail::tensor_list(get()); }
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (size_t i = 0; i < gshm_tensors_file_count(get()); ++i) names.emplace_back(gshm_tensors_file(get(), i));
        return names;
    }
    // "__metadata__" of a file.
    std::vector<Attribute> metadata(size_t file = 0) const {
        std::vector<Attribute> pairs;
        for (size_t i = 0; i < gshm_tensors_metadata_count(get(), file); ++i) {
            const gshm_attribute* one = gshm_tensors_metadata(get(), file, i);
            pairs.push_back({one->name, std::string(static_cast<const char*>(one->value), one->value_bytes)});
        }
        return pairs;
    }

private:
    struct Free {
        void operator()(gshm_tensors* tensors) const noexcept { gshm_tensors_free(tensors); }
    };
    explicit Tensors(gshm_tensors* handle) noexcept : handle_(handle) {}

    template <class Call>
    static Result<Tensors> make(std::initializer_list<std::string_view> strings, Call body) {
        gshm_tensors* handle = nullptr;
        if (auto done = detail::call(strings, [&] { return body(&handle); }); !done) return std::move(done).error();
        return Tensors(handle);
    }

    std::unique_ptr<gshm_tensors, Free> handle_;
};

// A tensor to load, or a slice of it.
struct TensorChoice {
    std::string name;
    std::string device = {};  // "": that of the options
    int32_t dimension = -1;   // -1: the whole tensor
    uint64_t begin = 0;
    uint64_t end = 0;
};

struct LoadOptions {
    std::string path;
    std::string name = {};                                  // "": made from the path of each file
    std::string device = {};                                // "": the daemon's first
    std::optional<std::vector<TensorChoice>> choices = {};  // none: all tensors
    uint32_t mode = 0;                                      // 0: the rights to read the file
    std::optional<std::chrono::milliseconds> timeout = {};  // none: no limit
    bool map = true;                                        // false: GSHM_LOAD_NO_MAP
    bool existing = false;                                  // GSHM_LOAD_EXISTING
    Progress progress = {};                                 // may be empty; false stops it
    std::chrono::milliseconds ttl{0};                       // of new objects, as in CreateSpec; likewise the next two
    bool ttl_unused = false;
    bool ephemeral = false;
    bool evictable = false;  // GSHM_LOAD_EVICTABLE
};

// The tensors of one file on one device. The object belongs to the model.
struct ModelPart {
    gshm_object* object = nullptr;
    std::string name;
    std::string file;
    std::string device;
    std::vector<TensorInfo> tensors;
    uint64_t read_bytes = 0;
    bool shared = false;  // GSHM_PART_SHARED
};

class Model {
public:
    Model() = default;
    static Result<Model> load(const Client& client, const LoadOptions& options) {
        gshm_load_spec spec = GSHM_LOAD_SPEC_INIT;
        spec.flags = (options.map ? 0u : uint32_t{GSHM_LOAD_NO_MAP}) |
                     (options.existing ? uint32_t{GSHM_LOAD_EXISTING} : 0u) |
                     (options.ttl_unused ? uint32_t{GSHM_LOAD_TTL_UNUSED} : 0u) |
                     (options.ephemeral ? uint32_t{GSHM_LOAD_EPHEMERAL} : 0u) |
                     (options.evictable ? uint32_t{GSHM_LOAD_EVICTABLE} : 0u);
        spec.ttl_ms = static_cast<uint64_t>(options.ttl.count());
        spec.path = options.path.c_str();
        spec.name = detail::or_null(options.name);
        spec.device = detail::or_null(options.device);
        spec.mode = options.mode;
        if (options.timeout) spec.timeout_ms = detail::clamp_ms(*options.timeout);
        std::vector<gshm_tensor_choice> choices(1, detail::sized<gshm_tensor_choice>());  // not NULL if there are none
        if (options.choices) {
            choices.clear();
            for (const auto& choice : *options.choices) {
                choices.push_back({sizeof(gshm_tensor_choice), choice.dimension, choice.name.c_str(),
                                   detail::or_null(choice.device), choice.begin, choice.end});
            }
            spec.choice_count = choices.size();
            if (choices.empty()) choices.push_back(detail::sized<gshm_tensor_choice>());
            spec.choices = choices.data();
        }
        if (options.progress) {
            spec.progress = [](void* context, uint64_t done, uint64_t total) {
                return (*static_cast<const Progress*>(context))(done, total) ? 0 : 1;
            };
            spec.context = const_cast<Progress*>(&options.progress);
        }
        gshm_model* handle = nullptr;
        auto done = detail::call({options.path, options.name, options.device},
                                 [&] { return gshm_load(client.get(), &spec, &handle); });
        if (!done) return std::move(done).error();
        Model model(handle);
        for (size_t i = 0; i < gshm_model_count(handle); ++i) {
            auto part = detail::sized<gshm_model_part>();
            if (auto got = detail::call({}, [&] { return gshm_model_get_part(handle, i, &part); }); !got)
                return std::move(got).error();
            auto tensors = detail::tensor_list(part.tensors);
            if (!tensors) return std::move(tensors).error();
            model.parts_.push_back({part.object, part.name, part.file, part.device, *std::move(tensors),
                                    part.read_bytes, (part.flags & GSHM_PART_SHARED) != 0});
        }
        return model;
    }
    gshm_model* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    const std::vector<ModelPart>& parts() const noexcept { return parts_; }
    // The part's object, which may outlive the model. An empty one if it was taken before.
    Object take(size_t index) noexcept { return Object::adopt(gshm_model_take(get(), index)); }

private:
    struct Close {
        void operator()(gshm_model* model) const noexcept { gshm_model_close(model); }
    };
    explicit Model(gshm_model* handle) noexcept : handle_(handle) {}

    std::unique_ptr<gshm_model, Close> handle_;
    std::vector<ModelPart> parts_;
};

}  // namespace v0
}  // namespace gshm

#endif

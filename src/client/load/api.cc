// gshm.h: gshm_load() and models.
#include "client/api.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "client/load/loader.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

Result<std::vector<std::string>> device_names(gshm_client* client) {
    std::vector<gshm_device_info> devices(64);
    devices[0] = GSHM_DEVICE_INFO_INIT;
    size_t count = 0;
    TRY(as_status(gshm_devices(client, devices.data(), devices.size(), &count)));
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(count, devices.size()); ++i) names.emplace_back(devices[i].name);
    return names;
}

Status check_device(const std::vector<std::string>& names, const char* device) {
    if (device == nullptr || std::ranges::find(names, device) != names.end()) return {};
    return fail(ENODEV, "there is no device \"{}\"; gshmd has: {}", device, fmt::join(names, ", "));
}

Result<std::vector<Choice>> read_choices(const gshm_load_spec& spec, const std::vector<std::string>& devices,
                                         const std::string& device) {
    std::vector<Choice> choices;
    for (size_t i = 0; i < spec.choice_count; ++i) {
        const auto one = TRY(read_struct<gshm_tensor_choice>(element(spec.choices, i), spec.choices[0].struct_size));
        TRY(check_argument(one.name != nullptr, "the name of a choice is NULL"));
        TRY(check_argument(one.dimension >= -1, "the dimension of a choice is negative"));
        TRY(check_device(devices, one.device));
        choices.push_back({one.name, one.device != nullptr ? one.device : device, one.dimension, one.begin, one.end});
    }
    return choices;
}

}  // namespace

extern "C" {

int gshm_load(gshm_client* client, const gshm_load_spec* spec, gshm_model** ret_model) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(spec != nullptr && ret_model != nullptr, "spec or ret_model is NULL"));
        const auto wanted = TRY(read_struct(spec));
        TRY(check_argument(wanted.path != nullptr, "path is NULL"));
        constexpr uint32_t kKnown =
            GSHM_LOAD_NO_MAP | GSHM_LOAD_EXISTING | GSHM_LOAD_EVICTABLE | GSHM_LOAD_EPHEMERAL | GSHM_LOAD_TTL_UNUSED;
        TRY(check_flags(wanted.flags, kKnown, "load"));
        TRY(check_argument(wanted.choices != nullptr || wanted.choice_count == 0, "choices is NULL"));
        TRY(check_argument((wanted.mode & ~0777u) == 0, "mode has more than permission bits"));
        if (wanted.name != nullptr) TRY(check_name_argument(wanted.name));
        const auto devices = TRY(device_names(client));
        TRY(check_argument(!devices.empty(), "gshmd has no devices"));
        TRY(check_device(devices, wanted.device));
        const std::string device = wanted.device != nullptr ? wanted.device : devices[0];
        const auto choices = TRY(read_choices(wanted, devices, device));
        auto source = TRY(open_source(wanted.path));
        auto parts = TRY(wanted.choices == nullptr ? plan_all(source, device) : plan_choices(source, choices));
        *ret_model = TRY(Loader(client, wanted, std::move(source), std::move(parts)).run()).release();
        return {};
    });
}

void gshm_model_close(gshm_model* model) noexcept {
    delete model;
}

size_t gshm_model_count(const gshm_model* model) noexcept {
    return model == nullptr ? 0 : model->parts.size();
}

int gshm_model_get_part(const gshm_model* model, size_t index, gshm_model_part* ret_part) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(model != nullptr && ret_part != nullptr, "model or ret_part is NULL"));
        TRY(check_argument(index < model->parts.size(), "the model has no such part"));
        const auto& part = model->parts[index];
        return write_struct(ret_part,
                            gshm_model_part{sizeof(gshm_model_part), part.is_shared ? uint32_t{GSHM_PART_SHARED} : 0,
                                            part.object.get(), part.tensors.get(), part.name.c_str(), part.file.c_str(),
                                            part.device.c_str(), part.read_bytes});
    });
}

gshm_object* gshm_model_take(gshm_model* model, size_t index) noexcept {
    return model == nullptr || index >= model->parts.size() ? nullptr : model->parts[index].object.release();
}

}  // extern "C"

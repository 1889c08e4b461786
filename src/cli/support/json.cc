#include "cli/support/json.h"

#include <type_traits>

#include <nlohmann/json.hpp>

namespace gshm::cli {
namespace {

using Json = nlohmann::ordered_json;

Json convert(const Record& record) {
    Json object = Json::object();
    for (const auto& [key, value] : record.fields()) {
        object[key] = std::visit(
            [](const auto& held) {
                using Held = std::decay_t<decltype(held)>;
                if constexpr (std::is_same_v<Held, std::shared_ptr<const Record>>) {
                    return convert(*held);
                } else if constexpr (std::is_same_v<Held, std::vector<Record>>) {
                    Json list = Json::array();
                    for (const auto& element : held) list.push_back(convert(element));
                    return list;
                } else {
                    return Json(held);
                }
            },
            value);
    }
    return object;
}

}  // namespace

std::string to_json(const Record& record, bool indented) {
    return convert(record).dump(indented ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

std::optional<uint64_t> json_number(const std::string& text, const char* key) {
    const auto json = Json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_unsigned()) return std::nullopt;
    return json[key].get<uint64_t>();
}

std::optional<std::string> json_text(const std::string& text, const char* key) {
    const auto json = Json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return std::nullopt;
    return json[key].get<std::string>();
}

}  // namespace gshm::cli

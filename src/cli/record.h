// Record: named values in an order, nested as need be. What a command has to say, before it is JSON.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gshm::cli {

class Record {
public:
    using Value = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<std::string>,
                               std::vector<Record>, std::shared_ptr<const Record>>;
    struct Field;

    Record& add(std::string key, std::string value) { return add_value(std::move(key), std::move(value)); }
    Record& add(std::string key, const char* value) { return add_value(std::move(key), std::string(value)); }
    Record& add(std::string key, bool value) { return add_value(std::move(key), value); }
    Record& add(std::string key, double value) { return add_value(std::move(key), value); }
    Record& add(std::string key, std::signed_integral auto value) {
        return add_value(std::move(key), static_cast<int64_t>(value));
    }
    Record& add(std::string key, std::unsigned_integral auto value) {
        return add_value(std::move(key), static_cast<uint64_t>(value));
    }
    Record& add(std::string key, std::vector<std::string> values) {
        return add_value(std::move(key), std::move(values));
    }
    Record& add(std::string key, std::vector<Record> values) { return add_value(std::move(key), std::move(values)); }
    Record& add(std::string key, Record value);

    const std::vector<Field>& fields() const { return fields_; }

private:
    Record& add_value(std::string key, Value value);

    std::vector<Field> fields_;
};

struct Record::Field {
    std::string key;
    Value value;
};

inline Record& Record::add_value(std::string key, Value value) {
    fields_.push_back({std::move(key), std::move(value)});
    return *this;
}

inline Record& Record::add(std::string key, Record value) {
    return add_value(std::move(key), std::make_shared<const Record>(std::move(value)));
}

}  // namespace gshm::cli

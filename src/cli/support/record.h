// Record: an ordered list of named values, possibly nested. The output of a command before its conversion to JSON.
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
                               std::vector<uint64_t>, std::vector<Record>, std::shared_ptr<const Record>>;

    Record& add(std::string key, std::string value);
    Record& add(std::string key, const char* value);
    Record& add(std::string key, bool value);
    Record& add(std::string key, double value);
    Record& add(std::string key, std::signed_integral auto value) { return add_signed(std::move(key), value); }
    Record& add(std::string key, std::unsigned_integral auto value) { return add_unsigned(std::move(key), value); }
    Record& add(std::string key, std::vector<std::string> values);
    Record& add(std::string key, std::vector<uint64_t> values);
    Record& add(std::string key, std::vector<Record> values);
    Record& add(std::string key, Record value);

    const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }

private:
    Record& add_signed(std::string key, int64_t value);
    Record& add_unsigned(std::string key, uint64_t value);

    std::vector<std::pair<std::string, Value>> fields_;
};

}  // namespace gshm::cli

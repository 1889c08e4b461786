#include "cli/support/record.h"

namespace gshm::cli {

Record& Record::add(std::string key, std::string value) {
    fields_.emplace_back(std::move(key), std::move(value));
    return *this;
}

Record& Record::add(std::string key, const char* value) {
    return add(std::move(key), std::string(value));
}

Record& Record::add(std::string key, bool value) {
    fields_.emplace_back(std::move(key), value);
    return *this;
}

Record& Record::add(std::string key, double value) {
    fields_.emplace_back(std::move(key), value);
    return *this;
}

Record& Record::add(std::string key, std::vector<std::string> values) {
    fields_.emplace_back(std::move(key), std::move(values));
    return *this;
}

Record& Record::add(std::string key, std::vector<uint64_t> values) {
    fields_.emplace_back(std::move(key), std::move(values));
    return *this;
}

Record& Record::add(std::string key, std::vector<Record> values) {
    fields_.emplace_back(std::move(key), std::move(values));
    return *this;
}

Record& Record::add(std::string key, Record value) {
    fields_.emplace_back(std::move(key), std::make_shared<const Record>(std::move(value)));
    return *this;
}

Record& Record::add_signed(std::string key, int64_t value) {
    fields_.emplace_back(std::move(key), value);
    return *this;
}

Record& Record::add_unsigned(std::string key, uint64_t value) {
    fields_.emplace_back(std::move(key), value);
    return *this;
}

}  // namespace gshm::cli

// Rows to be written, each with its statement. One thread gathers them, another writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/sqlite.h"

namespace gshm::core {

class Rows {
public:
    // Begins a row; its values follow, in the order of the statement's parameters.
    Rows& add(uint8_t statement) {
        rows_.push_back({values_.size(), statement});
        sum_ = {};
        return *this;
    }
    Rows& bind(int64_t value) {
        sum_.add(value);
        values_.push_back({Kind::number, 0, value});
        return *this;
    }
    Rows& bind(uint64_t value) { return bind(static_cast<int64_t>(value)); }
    Rows& bind(uint32_t value) { return bind(static_cast<int64_t>(value)); }
    Rows& bind_null() {
        sum_.add(0);
        values_.push_back({Kind::null, 0, 0});
        return *this;
    }
    Rows& bind_null_blob() {
        sum_.add(std::string_view());
        values_.push_back({Kind::null, 0, 0});
        return *this;
    }
    Rows& bind_blob(std::string_view bytes) {
        sum_.add(bytes);
        values_.push_back({Kind::blob, static_cast<uint32_t>(bytes.size()), static_cast<int64_t>(bytes_.size())});
        bytes_ += bytes;
        return *this;
    }
    // Checksum of the current row so far.
    uint64_t bound_sum() const { return sum_.value(); }
    // The change of the catalog's sum by these rows.
    uint64_t delta = 0;

    bool empty() const { return rows_.empty(); }
    void clear() {
        rows_.clear();
        values_.clear();
        bytes_.clear();
        delta = 0;
    }
    // Runs the statements, by their numbers.
    template <typename StatementOf>
    Status write(StatementOf&& statement_of) const {
        for (size_t i = 0; i < rows_.size(); ++i) {
            Statement& statement = statement_of(rows_[i].statement);
            const size_t end = i + 1 < rows_.size() ? rows_[i + 1].first : values_.size();
            for (size_t at = rows_[i].first; at < end; ++at) {
                const Value& value = values_[at];
                if (value.kind == Kind::number) statement.bind(value.number);
                else if (value.kind == Kind::null) statement.bind_null();
                else statement.bind_blob(std::string_view(bytes_).substr(static_cast<size_t>(value.number), value.bytes));
            }
            TRY(statement.run());
        }
        return {};
    }

private:
    enum class Kind : uint8_t { number, null, blob };
    struct Value {
        Kind kind;
        uint32_t bytes;   // of a blob
        int64_t number;   // or the offset of a blob
    };
    struct Row {
        size_t first;  // index of its first value
        uint8_t statement;
    };
    std::vector<Row> rows_;
    std::vector<Value> values_;
    std::string bytes_;
    RowSum sum_;  // of the current row
};

}  // namespace gshm::core

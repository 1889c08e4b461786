// Rows to be written, each with its statement, as bytes: for the journal and for SQLite.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "catalog/sqlite.h"

namespace gshm::core {

class Rows {
public:
    // Begins a row; its values follow, in the order of the statement's parameters.
    Rows& add(uint8_t statement) {
        bytes_.push_back(static_cast<char>(kRow | statement));
        sum_ = {};
        return *this;
    }
    Rows& bind(int64_t value) {
        sum_.add(value);
        return put(kNumber, value);
    }
    Rows& bind(uint64_t value) { return bind(static_cast<int64_t>(value)); }
    Rows& bind(uint32_t value) { return bind(static_cast<int64_t>(value)); }
    Rows& bind_null() {
        sum_.add(0);
        bytes_.push_back(kNull);
        return *this;
    }
    Rows& bind_null_blob() {
        sum_.add(std::string_view());
        bytes_.push_back(kNull);
        return *this;
    }
    Rows& bind_blob(std::string_view bytes) {
        sum_.add(bytes);
        put(kBlob, static_cast<uint32_t>(bytes.size()));
        bytes_ += bytes;
        return *this;
    }
    // Checksum of the current row so far.
    uint64_t bound_sum() const { return sum_.value(); }
    // The change of the catalog's sum by these rows.
    uint64_t delta = 0;

    bool empty() const { return bytes_.empty(); }
    std::string_view bytes() const { return bytes_; }
    size_t reserved_bytes() const { return bytes_.capacity(); }
    void clear() {
        constexpr size_t kMostBytes = 4 << 20;
        // An assignment would keep the memory.
        if (bytes_.capacity() > kMostBytes) std::string().swap(bytes_);
        bytes_.clear();
        delta = 0;
    }

    // Runs the statements of such bytes. `statement_of` returns a statement by its number; null: there is none.
    template <typename StatementOf>
    static Status run(std::string_view bytes, StatementOf&& statement_of) {
        Statement* statement = nullptr;
        auto invalid = [&]() -> Status {
            if (statement != nullptr) statement->reset();
            return fail(EUCLEAN, "the catalog: a row of the journal is invalid");
        };
        while (!bytes.empty()) {
            const auto tag = static_cast<uint8_t>(take<char>(bytes));
            if ((tag & kRow) != 0) {
                if (statement != nullptr) TRY(statement->run());
                statement = statement_of(static_cast<uint8_t>(tag & ~kRow));
                if (statement == nullptr) return invalid();
            } else if (statement == nullptr) {
                return invalid();
            } else if (tag == kNull) {
                statement->bind_null();
            } else if (tag == kNumber && bytes.size() >= sizeof(int64_t)) {
                statement->bind(take<int64_t>(bytes));
            } else if (tag == kBlob && bytes.size() >= sizeof(uint32_t)) {
                const auto size = take<uint32_t>(bytes);
                if (size > bytes.size()) return invalid();
                statement->bind_blob(bytes.substr(0, size));
                bytes.remove_prefix(size);
            } else {
                return invalid();
            }
        }
        return statement == nullptr ? Status{} : statement->run();
    }

private:
    // A byte before each row and each value.
    enum Tag : uint8_t { kNumber = 0, kNull = 1, kBlob = 2, kRow = 0x80 };

    template <typename Value>
    Rows& put(Tag tag, Value value) {
        char bytes[1 + sizeof value];
        bytes[0] = static_cast<char>(tag);
        memcpy(bytes + 1, &value, sizeof value);
        bytes_.append(bytes, sizeof bytes);
        return *this;
    }
    template <typename Value>
    static Value take(std::string_view& bytes) {
        Value value;
        memcpy(&value, bytes.data(), sizeof value);
        bytes.remove_prefix(sizeof value);
        return value;
    }

    std::string bytes_;
    RowSum sum_;  // of the current row
};

}  // namespace gshm::core

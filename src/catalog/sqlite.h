// Owners and Results for SQLite: a database, and a statement that is prepared once and run often.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "catalog/row_sum.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gshm::core {

class Database;

class Statement {
public:
    Statement() = default;

    // The next parameters, in order.
    Statement& bind(int64_t value);
    Statement& bind(uint64_t value) { return bind(static_cast<int64_t>(value)); }
    Statement& bind(uint32_t value) { return bind(static_cast<int64_t>(value)); }
    Statement& bind_null();       // a number; counts as 0 in the checksum
    Statement& bind_null_blob();  // bytes; counts as empty in the checksum
    // The caller keeps the bytes until the statement has run.
    Statement& bind_blob(std::string_view bytes);
    // Checksum of the parameters bound so far.
    uint64_t bound_sum() const { return bound_.value(); }

    // Runs it to the end and resets it.
    Status run();
    // Forgets its parameters.
    void reset();
    // Calls `on_row` for every row, which reads the columns.
    template <typename OnRow>
    Status each(OnRow&& on_row) {
        for (;;) {
            auto more = step();
            if (!more) {
                reset();
                return std::unexpected(more.error());
            }
            if (!*more) break;
            on_row();
        }
        reset();
        return {};
    }

    int64_t number(int column) const;
    uint64_t unsigned_number(int column) const { return static_cast<uint64_t>(number(column)); }
    bool is_null(int column) const;
    std::string_view blob(int column) const;  // valid until the next row

private:
    friend class Database;
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    Result<bool> step();

    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
    int next_ = 1;
    RowSum bound_;
    bool bad_ = false;
};

class Database {
public:
    // existing: ENOENT if it does not exist; its files are not written, not even on close, before allow_checkpoints().
    enum class Mode { make, existing };
    static Result<Database> open(const std::string& path, Mode mode = Mode::make);
    void allow_checkpoints();

    Status execute(const char* sql);
    bool is_in_transaction() const;
    Result<Statement> prepare(std::string_view sql);

private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace gshm::core

#include "catalog/sqlite.h"

#include <sqlite3.h>

namespace gshm {
namespace {

std::unexpected<Error> failure(sqlite3* database, int code) {
    int primary = code & 0xff;
    int number = EIO;
    if (primary == SQLITE_FULL) number = ENOSPC;
    if (primary == SQLITE_NOMEM) number = ENOMEM;
    if (primary == SQLITE_BUSY) number = EBUSY;
    if (primary == SQLITE_CANTOPEN) number = EACCES;
    return fail(number, "the catalog: {}", database == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database));
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
}

void Database::Close::operator()(sqlite3* database) const {
    sqlite3_close_v2(database);
}

Statement& Statement::bind(int64_t value) {
    bad_ |= sqlite3_bind_int64(statement_.get(), next_++, value) != SQLITE_OK;
    return *this;
}

Statement& Statement::bind_null() {
    bad_ |= sqlite3_bind_null(statement_.get(), next_++) != SQLITE_OK;
    return *this;
}

Statement& Statement::bind_blob(std::string_view bytes) {
    // A null pointer would be NULL, not empty.
    bad_ |= sqlite3_bind_blob64(statement_.get(), next_++, bytes.empty() ? "" : bytes.data(), bytes.size(),
                                SQLITE_STATIC) != SQLITE_OK;
    return *this;
}

Result<bool> Statement::step() {
    if (bad_) return fail(ENOMEM, "the catalog: a value could not be bound");
    int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return failure(sqlite3_db_handle(statement_.get()), code);
}

void Statement::reset() {
    sqlite3_reset(statement_.get());
    next_ = 1;
    bad_ = false;
}

Status Statement::run() {
    auto more = step();
    reset();
    if (!more) return std::unexpected(more.error());
    return {};
}

int64_t Statement::number(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
}

bool Statement::is_null(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::string_view Statement::blob(int column) const {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
    return {bytes == nullptr ? "" : bytes, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<Database> Database::open(const std::string& path) {
    sqlite3* opened = nullptr;
    int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                               nullptr);
    Database database;
    database.database_.reset(opened);
    if (code != SQLITE_OK) return failure(opened, code);
    return database;
}

Status Database::execute(const char* sql) {
    int code = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) return failure(database_.get(), code);
    return {};
}

bool Database::is_in_transaction() const {
    return sqlite3_get_autocommit(database_.get()) == 0;
}

Result<Statement> Database::prepare(std::string_view sql) {
    sqlite3_stmt* prepared = nullptr;
    int code = sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                  &prepared, nullptr);
    if (code != SQLITE_OK) return failure(database_.get(), code);
    Statement statement;
    statement.statement_.reset(prepared);
    return statement;
}

}  // namespace gshm

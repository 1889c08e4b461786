#include "catalog/sqlite.h"

#include <cstring>
#include <sqlite3.h>
#include <unistd.h>

namespace gshm::core {
namespace {

std::unexpected<Error> failure(sqlite3* database, int code) {
    int primary = code & 0xff;
    int number = EIO;
    if (primary == SQLITE_FULL) number = ENOSPC;
    if (primary == SQLITE_NOMEM) number = ENOMEM;
    if (primary == SQLITE_BUSY) number = EBUSY;
    if (primary == SQLITE_CANTOPEN) number = EACCES;
    if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR || primary == SQLITE_FORMAT ||
        primary == SQLITE_SCHEMA || code == SQLITE_IOERR_SHORT_READ) {
        number = EUCLEAN;
    }
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
    bound_.add(value);
    bad_ |= sqlite3_bind_int64(statement_.get(), next_++, value) != SQLITE_OK;
    return *this;
}

Statement& Statement::bind_null() {
    bound_.add(0);
    bad_ |= sqlite3_bind_null(statement_.get(), next_++) != SQLITE_OK;
    return *this;
}

Statement& Statement::bind_null_blob() {
    bound_.add(std::string_view());
    bad_ |= sqlite3_bind_null(statement_.get(), next_++) != SQLITE_OK;
    return *this;
}

Statement& Statement::bind_blob(std::string_view bytes) {
    bound_.add(bytes);
    // A null pointer would bind NULL instead of an empty blob.
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
    bound_ = {};
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

Result<Database> Database::open(const std::string& path, Mode mode) {
    if (mode == Mode::existing && access(path.c_str(), F_OK) != 0) {
        return fail(errno, "the catalog: {}: {}", path, strerror(errno));
    }
    sqlite3* opened = nullptr;
    const int make = mode == Mode::make ? SQLITE_OPEN_CREATE : 0;
    int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | make | SQLITE_OPEN_NOMUTEX, nullptr);
    Database database;
    database.database_.reset(opened);
    if (code != SQLITE_OK) return failure(opened, code);
    // SQLite opens a file for reading if it cannot be opened for writing.
    if (sqlite3_db_readonly(opened, "main") == 1)
        return fail(EROFS, "the catalog: {} cannot be opened for writing", path);
    sqlite3_extended_result_codes(opened, 1);
    if (mode == Mode::existing) sqlite3_db_config(opened, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    return database;
}

void Database::allow_checkpoints() {
    sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
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

}  // namespace gshm::core

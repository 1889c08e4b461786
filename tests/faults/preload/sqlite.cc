// Calls into libsqlite3.
#include <sqlite3.h>

#include "decide.h"

namespace {

// The code for sqlite3_errmsg() until the next call: SQLite does not know of an injected failure.
thread_local int injected = SQLITE_OK;

int error_for(const void* caller, const char* call, int code) {
    injected = SQLITE_OK;
    bool fails = gshm::core::faults::caller_at(caller) == gshm::core::faults::Caller::gshmd &&
                 gshm::core::faults::fails(gshm::core::faults::Class::sqlite, call);
    return injected = fails ? code : SQLITE_OK;
}

}  // namespace

#define FAULTS_SQLITE(name, parameters, arguments, error)                   \
    FAULTS_EXPORT int name parameters {                                     \
        FAULTS_NEXT(name);                                                  \
        if (int code = error_for(FAULTS_CALLER, #name, error)) return code; \
        return real arguments;                                              \
    }

FAULTS_SQLITE(sqlite3_step, (sqlite3_stmt * statement), (statement), SQLITE_FULL)
FAULTS_SQLITE(sqlite3_bind_int64, (sqlite3_stmt * statement, int at, sqlite3_int64 value), (statement, at, value),
              SQLITE_NOMEM)
FAULTS_SQLITE(sqlite3_bind_null, (sqlite3_stmt * statement, int at), (statement, at), SQLITE_NOMEM)
FAULTS_SQLITE(sqlite3_bind_blob64,
              (sqlite3_stmt * statement, int at, const void* bytes, sqlite3_uint64 count, void (*drop)(void*)),
              (statement, at, bytes, count, drop), SQLITE_NOMEM)
FAULTS_SQLITE(sqlite3_exec,
              (sqlite3 * database, const char* sql, int (*row)(void*, int, char**, char**), void* with, char** message),
              (database, sql, row, with, message), SQLITE_IOERR)

FAULTS_EXPORT int sqlite3_prepare_v3(sqlite3* database, const char* sql, int bytes, unsigned flags,
                                     sqlite3_stmt** ret_statement, const char** ret_rest) {
    FAULTS_NEXT(sqlite3_prepare_v3);
    if (int code = error_for(FAULTS_CALLER, "sqlite3_prepare_v3", SQLITE_NOMEM)) {
        *ret_statement = nullptr;
        return code;
    }
    return real(database, sql, bytes, flags, ret_statement, ret_rest);
}

FAULTS_EXPORT int sqlite3_open_v2(const char* path, sqlite3** ret_database, int flags, const char* files) {
    FAULTS_NEXT(sqlite3_open_v2);
    if (int code = error_for(FAULTS_CALLER, "sqlite3_open_v2", SQLITE_CANTOPEN)) {
        *ret_database = nullptr;
        return code;
    }
    return real(path, ret_database, flags, files);
}

FAULTS_EXPORT const char* sqlite3_errmsg(sqlite3* database) {
    FAULTS_NEXT(sqlite3_errmsg);
    return injected == SQLITE_OK ? real(database) : sqlite3_errstr(injected);
}

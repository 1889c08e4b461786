// Migrations: the file of an older gshmd becomes one of the newest version. The version is PRAGMA user_version.
#pragma once

#include <span>

#include "catalog/sqlite.h"

namespace gshm::core {

// The step from version n to n + 1 is the element n - 1. A step is never changed or removed once it is released.
using Migration = Status (*)(Database& database);
using Migrations = std::span<const Migration>;
Migrations migrations();
constexpr int newest_version(Migrations steps) {
    return static_cast<int>(steps.size()) + 1;
}

// Rows have checksums from this version on.
inline constexpr int kFirstVersionWithSums = 2;

// Runs the steps from that version to the newest, and sets the checksums of all rows and the version. The caller has
// begun a transaction.
Status migrate(Database& database, int version, Migrations steps);
// Returns the sum of all rows, of every table that has checksums. EUCLEAN: a row does not match its checksum.
Result<uint64_t> check_rows(Database& database);
// SQLite's own check of the file, which finds no changed values. EUCLEAN: it is damaged.
Status check_pages(Database& database);
// The version of a file that a running gshmd may have locked. 0: unknown.
int version_in_file(const std::string& path);

}  // namespace gshm::core

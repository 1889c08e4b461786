#include "catalog/migrations.h"

#include <array>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/fd.h"

namespace gshm::core {
namespace {

// Version 2: checksums of rows; extents whose descriptors the keeper does not have; fabric handles.
// Version 1 does not tell which extents have a fabric handle in use: those of GPUs may.
Status add_sums(Database& database) {
    return database.execute(R"(
ALTER TABLE meta ADD COLUMN sum INTEGER;
ALTER TABLE devices ADD COLUMN sum INTEGER;
ALTER TABLE extents ADD COLUMN kept INTEGER;
ALTER TABLE extents ADD COLUMN given INTEGER;
ALTER TABLE extents ADD COLUMN handle BLOB;
ALTER TABLE extents ADD COLUMN sum INTEGER;
ALTER TABLE nodes ADD COLUMN sum INTEGER;
ALTER TABLE done ADD COLUMN sum INTEGER;
UPDATE extents SET kept = 1, handle = x'', given = coalesce((
  SELECT length(uuid) > 0 FROM devices WHERE devices.number = extents.device), 0);
)");
}

// Version 3: further parts of nodes.more, such as ACLs. No table changes, and rows of version 2 are as they would be
// written now. An older gshmd would refuse such a part as damage, so it must not open the file.
Status add_parts(Database&) {
    return {};
}

constexpr Migration kMigrations[] = {add_sums, add_parts};

struct Table {
    std::string name;
    std::string key;               // the first column
    std::vector<bool> is_numeric;  // by column, without the checksum
};

Result<std::vector<Table>> tables_with_sums(Database& database) {
    std::vector<std::string> names;
    auto list = TRY(database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"));
    TRY(list.each([&] { names.emplace_back(list.blob(0)); }));
    std::vector<Table> tables;
    for (const auto& name : names) {
        Table table{name, "", {}};
        std::string last;
        auto columns = TRY(database.prepare(fmt::format("SELECT name, type FROM pragma_table_info('{}')", name)));
        TRY(columns.each([&] {
            last = columns.blob(0);
            if (table.key.empty()) table.key = last;
            table.is_numeric.push_back(columns.blob(1) == "INTEGER");
        }));
        if (last != "sum") continue;
        table.is_numeric.pop_back();
        tables.push_back(std::move(table));
    }
    return tables;
}

uint64_t sum_of_row(const Table& table, const Statement& row) {
    RowSum sum;
    for (size_t i = 0; i < table.is_numeric.size(); ++i) {
        const int column = static_cast<int>(i);
        if (table.is_numeric[i]) sum.add(row.number(column));
        else sum.add(row.blob(column));
    }
    return sum.value();
}

Status set_sums(Database& database, const Table& table) {
    struct Row {
        int64_t number;
        std::string bytes;
        uint64_t sum;
    };
    std::vector<Row> sums;
    auto rows = TRY(database.prepare(fmt::format("SELECT * FROM {}", table.name)));
    TRY(rows.each([&] { sums.push_back({rows.number(0), std::string(rows.blob(0)), sum_of_row(table, rows)}); }));
    auto update = TRY(database.prepare(fmt::format("UPDATE {} SET sum = ? WHERE {} = ?", table.name, table.key)));
    for (const Row& row : sums) {
        update.bind(row.sum);
        if (table.is_numeric[0]) update.bind(row.number);
        else update.bind_blob(row.bytes);
        TRY(update.run());
    }
    return {};
}

uint32_t big_endian(const std::byte* bytes) {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
    return value;
}

}  // namespace

Migrations migrations() {
    return kMigrations;
}

Status migrate(Database& database, int version, Migrations steps) {
    for (size_t step = static_cast<size_t>(version) - 1; step < steps.size(); ++step) TRY(steps[step](database));
    for (const Table& table : TRY(tables_with_sums(database))) TRY(set_sums(database, table));
    return database.execute(fmt::format("PRAGMA user_version = {}", newest_version(steps)).c_str());
}

Result<uint64_t> check_rows(Database& database) {
    uint64_t total = 0;
    for (const Table& table : TRY(tables_with_sums(database))) {
        Status good;
        auto rows = TRY(database.prepare(fmt::format("SELECT * FROM {}", table.name)));
        TRY(rows.each([&] {
            const uint64_t sum = sum_of_row(table, rows);
            total += sum;
            if (rows.unsigned_number(static_cast<int>(table.is_numeric.size())) == sum) return;
            good = fail(EUCLEAN, "row {} of the table {} is damaged", rows.number(0), table.name);
        }));
        TRY(std::move(good));
    }
    return total;
}

Status check_pages(Database& database) {
    std::string first;
    auto check = TRY(database.prepare("PRAGMA integrity_check(1)"));
    TRY(check.each([&] {
        if (first.empty()) first = check.blob(0);
    }));
    if (first == "ok") return {};
    return fail(EUCLEAN, "the catalog: {}", first);
}

// https://www.sqlite.org/fileformat2.html: the version is in page 1, the newest copy of which may be in the log.
int version_in_file(const std::string& path) {
    constexpr off_t kVersionOffset = 60;
    constexpr size_t kLogHeadBytes = 32;
    constexpr size_t kFrameHeadBytes = 24;
    using Bytes = std::array<std::byte, kLogHeadBytes>;
    auto read_at = [](const UniqueFd& fd, off_t at, size_t count) -> std::optional<Bytes> {
        Bytes bytes;
        if (!fd || pread(fd.get(), bytes.data(), count, at) != static_cast<ssize_t>(count)) return std::nullopt;
        return bytes;
    };
    uint32_t version = 0;
    auto file = UniqueFd::adopt(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (auto bytes = read_at(file, kVersionOffset, 4)) version = big_endian(bytes->data());
    auto log = UniqueFd::adopt(open((path + "-wal").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    const auto head = read_at(log, 0, kLogHeadBytes);
    if (!head) return static_cast<int>(version);
    const off_t page_bytes = big_endian(head->data() + 8);
    uint32_t uncommitted = version;
    for (off_t at = kLogHeadBytes; page_bytes > 0; at += static_cast<off_t>(kFrameHeadBytes) + page_bytes) {
        const auto frame = read_at(log, at, kFrameHeadBytes);
        // Frames of an earlier use of the log have another salt.
        if (!frame || memcmp(frame->data() + 8, head->data() + 16, 8) != 0) break;
        const bool is_first_page = big_endian(frame->data()) == 1;
        const bool is_commit = big_endian(frame->data() + 4) != 0;
        const auto in_page = read_at(log, at + static_cast<off_t>(kFrameHeadBytes) + kVersionOffset, 4);
        if (is_first_page && in_page) uncommitted = big_endian(in_page->data());
        if (is_commit) version = uncommitted;
    }
    return static_cast<int>(version);
}

}  // namespace gshm::core

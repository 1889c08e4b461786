// Reading a catalog: every row is checked, by itself and as part of the whole.
#include <charconv>
#include <cstdint>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_set>

#include "catalog/catalog.h"
#include "catalog/encoding.h"

namespace gshm {
namespace {

// Ids and keys have room for a kind or a flag above them in the ledger and in the keeper.
constexpr uint64_t kMostId = (uint64_t{1} << 56) - 1;
constexpr uint64_t kMostNumber = INT64_MAX;
// Of the tables, without the row's own sum, which is the last.
constexpr int kNodeColumns = 26;
constexpr int kExtentColumns = 14;

// The columns of a row, within bounds.
class Columns {
public:
    explicit Columns(const Statement& row) : row_(row) {}
    uint64_t number(int column, uint64_t most = kMostNumber) {
        const int64_t value = row_.number(column);
        if (value < 0 || static_cast<uint64_t>(value) > most) wrong(column);
        return static_cast<uint64_t>(value);
    }
    bool flag(int column) { return number(column, 1) != 0; }
    void wrong(int column) {
        if (wrong_ < 0) wrong_ = column;
    }
    // EUCLEAN if one was out of bounds.
    Status check(const char* what, uint64_t id) const {
        if (wrong_ < 0) return {};
        return fail(EUCLEAN, "{} {}: column {} has a value that cannot be", what, id, wrong_);
    }

private:
    const Statement& row_;
    int wrong_ = -1;
};

}  // namespace

Status Catalog::note_damage(Error error) {
    if (use_ != Use::salvage) return std::unexpected(std::move(error));
    if (damage_.rows++ == 0) damage_.first = error.message;
    return {};
}

Status Catalog::each_row(const char* table, int columns,
                         const std::function<Status(const Statement&, uint64_t sum)>& on_row) {
    std::unordered_set<int64_t> seen;  // of a table that is read from both ends
    auto read = [&](const char* order) -> Status {
        auto rows = TRY(database_.prepare(fmt::format("SELECT * FROM {}{}", table, order)));
        Status good;
        TRY(rows.each([&] {
            if (!good) return;
            if (use_ == Use::salvage && !seen.insert(rows.number(0)).second) return;
            const uint64_t sum = rows.row_sum(columns);
            total_ += sum;
            good = rows.unsigned_number(columns) == sum
                       ? on_row(rows, sum)
                       : fail(EUCLEAN, "row {} of the table {} is damaged", rows.number(0), table);
            if (!good) good = note_damage(good.error());
        }));
        return good;
    };
    auto forward = read("");
    if (forward) return {};
    if (use_ != Use::salvage) return forward;
    TRY(note_damage(forward.error()));
    if (auto backward = read(" ORDER BY 1 DESC"); !backward) TRY(note_damage(backward.error()));
    return {};
}

Status Catalog::read_small_tables() {
    TRY(each_row("meta", 2, [&](const Statement& row, uint64_t sum) -> Status {
        values_[std::string(row.blob(0))] = {std::string(row.blob(1)), sum};
        return {};
    }));
    TRY(each_row("devices", 3, [&](const Statement& row, uint64_t) -> Status {
        if (row.number(0) <= 0 || row.number(0) >= INT32_MAX) return fail(EUCLEAN, "a device has the number {}", row.number(0));
        devices_.push_back({row.number(0), std::string(row.blob(1)), std::string(row.blob(2))});
        return {};
    }));
    return each_row("done", 2, [&](const Statement& row, uint64_t sum) -> Status {
        done_[row.unsigned_number(0)] = {row.unsigned_number(1), sum};
        return {};
    });
}

Result<uint64_t> Catalog::stored_number(std::string_view key) const {
    auto text = value(key);
    if (!text) return 0;
    uint64_t number = 0;
    auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error != std::errc() || end != text->data() + text->size() || number > kMostId) {
        return fail(EUCLEAN, "the catalog: {} is \"{}\"", key, *text);
    }
    return number;
}

Status Catalog::load_extents(Restorer& restorer, const Take& take) {
    Status taken;  // an error of this is no damage
    auto read = each_row("extents", kExtentColumns, [&](const Statement& row, uint64_t sum) -> Status {
        if (!taken) return {};
        Columns columns(row);
        Kept kept;
        kept.key = columns.number(0, kMostId);
        auto device = device_indexes_.find(row.number(2));
        if (device == device_indexes_.end()) columns.wrong(2);
        else kept.device = device->second;
        kept.size_bytes = columns.number(3);
        kept.compressible = columns.flag(5);
        kept.is_file = columns.flag(6);
        SavedExtent extent;
        extent.key = kept.key;
        extent.id = columns.number(1, kMostId);
        extent.device = kept.device;
        extent.shown_bytes = columns.number(4);
        extent.compressible = kept.compressible;
        const bool is_slab = columns.flag(7);
        extent.closed = columns.flag(8);
        if (is_slab) {
            extent.slab = SlabKey{kept.device, static_cast<uid_t>(columns.number(9, UINT32_MAX)),
                                  static_cast<gid_t>(columns.number(10, UINT32_MAX)),
                                  static_cast<uint16_t>(columns.number(11, 07777)), kept.compressible,
                                  std::string(row.blob(12))};
        }
        kept.kept = columns.flag(13);
        TRY(columns.check("extent", kept.key));
        extent.row_sum = sum;
        auto memory = take(kept);
        if (!memory) taken = std::unexpected(memory.error());
        if (!memory || *memory == nullptr) return {};
        extent.memory = std::move(*memory);
        return restorer.add(std::move(extent));
    });
    TRY(std::move(taken));
    return read;
}

Status Catalog::load_nodes(Restorer& restorer) {
    return each_row("nodes", kNodeColumns, [&](const Statement& row, uint64_t sum) -> Status {
        Columns columns(row);
        SavedNode node;
        node.id = columns.number(0, kMostId);
        node.kind = static_cast<NodeKind>(columns.number(1, UINT8_MAX));
        node.mode = static_cast<uint16_t>(columns.number(2, 07777));
        node.uid = static_cast<uid_t>(columns.number(3, UINT32_MAX));
        node.gid = static_cast<gid_t>(columns.number(4, UINT32_MAX));
        node.created_ns = row.number(5);
        node.accessed_ns = row.number(6);
        node.modified_ns = row.number(7);
        node.changed_ns = row.number(8);
        if (!row.is_null(9)) {
            node.links.push_back({columns.number(9, kMostId), columns.number(10), std::string(row.blob(11))});
        } else {
            node.last_name = row.blob(11);
        }
        if (!row.is_null(12)) {
            auto device = device_indexes_.find(row.number(12));
            if (device == device_indexes_.end()) columns.wrong(12);
            else node.device = device->second;
        }
        node.state = static_cast<ObjectState>(columns.number(13, UINT8_MAX));
        node.flags = static_cast<uint32_t>(columns.number(14, UINT32_MAX));
        node.size_bytes = columns.number(15);
        node.extent = columns.number(16, kMostId);
        node.offset = columns.number(17);
        node.creator = columns.number(18, kMostId);
        node.file_modified_ns = row.number(19);
        node.file_accessed_ns = row.number(20);
        node.implicit = columns.flag(21);
        node.target = row.blob(22);
        node.type = static_cast<uint32_t>(columns.number(23, UINT32_MAX));
        node.number = static_cast<uint32_t>(columns.number(24, UINT32_MAX));
        TRY(columns.check("node", node.id));
        TRY(decode_more(row.blob(25), node));
        node.row_sum = sum;
        return restorer.add(node);
    });
}

Status Catalog::check() {
    if (sum_ != nullptr) {
        if (total_ != sum_->last && total_ != sum_->next) {
            return fail(EUCLEAN, "its rows are not those of the last commit: some are missing, or of an earlier state");
        }
        sum_->last = sum_->next = total_;
    }
    database_.allow_checkpoints();
    return {};
}

}  // namespace gshm

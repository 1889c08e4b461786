// The journal of an earlier daemon's catalog, damaged: any bytes, or entries with rows that no daemon has written. It is
// applied or refused, and a loaded store can be used and emptied.
#include <fstream>
#include <iterator>
#include <vector>

#include "base/log.h"
#include "catalog/journal.h"
#include "fuzz/catalog_rig.h"
#include "fuzz/input.h"

namespace gshm::core::fuzz {
namespace {

constexpr size_t kJournalBytes = 2048;  // small, so that entries reach its end

// A catalog without rows, as a file: making one takes most of the time of a run.
const std::string& empty_catalog() {
    static const std::string bytes = [] {
        const auto path = fresh_catalog();
        require(Catalog::create(path).has_value(), "a catalog can be made");
        std::ifstream file(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    }();
    return bytes;
}

// The rows of an entry: mostly values in any number and order, for a statement that mostly exists.
std::string make_rows(Input& input) {
    if (input.below(8) == 0) return input.text(200);
    Rows rows;
    for (uint32_t count = 1 + input.below(3); count > 0; --count) {
        rows.add(static_cast<uint8_t>(input.below(9)));
        for (uint32_t values = input.below(30); values > 0; --values) {
            switch (input.below(4)) {
                case 0: rows.bind_null(); break;
                case 1: rows.bind_blob(input.text(20)); break;
                default: rows.bind(input.size());
            }
        }
        if (input.below(4) != 0) rows.bind(rows.bound_sum());
    }
    return std::string(rows.bytes());
}

// Appends and drops, and compares what is there with what should be.
void fill(Input& input, Journal& journal) {
    std::vector<std::string> expected;
    while (!input.at_end()) {
        if (input.below(6) == 0) {
            const auto place = journal.each([](std::string_view) -> Status { return {}; });
            require(place.has_value(), "the process that wrote a journal can read it");
            journal.drop(*place);
            expected.clear();
        }
        auto rows = make_rows(input);
        if (!rows.empty() && journal.append(rows)) expected.push_back(std::move(rows));
    }
    size_t at = 0;
    const auto read = journal.each([&](std::string_view rows) -> Status {
        require(at < expected.size() && rows == expected[at], "an entry has the bytes that were appended");
        ++at;
        return {};
    });
    require(read.has_value() && at == expected.size(), "every entry is read");
}

void run(Input input) {
    std::vector<uint64_t> memory(kJournalBytes / 8);
    const auto bytes = std::as_writable_bytes(std::span(memory));
    Journal journal(bytes);
    const bool salvage = input.below(2) != 0;
    if (input.below(4) == 0) {
        const auto any = input.take_all();
        memcpy(bytes.data(), any.data(), std::min(any.size(), bytes.size()));
    } else {
        const uint64_t damaged = input.below(4) == 0 ? input.number(2) : SIZE_MAX;
        fill(input, journal);
        if (damaged < bytes.size()) bytes[damaged] ^= std::byte{0x10};
    }
    const auto path = fresh_catalog();
    write_file(path, empty_catalog());
    load(path, salvage, &journal);
}

}  // namespace
}  // namespace gshm::core::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    gshm::core::log_to_file("/dev/null");
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    gshm::core::fuzz::run(gshm::core::fuzz::Input(data, size));
    return 0;
}

// The catalog of an earlier daemon, damaged: as bytes of the file, or with rows that no daemon has written. It is
// loaded or refused, and a loaded store can be used and emptied.
#include "base/log.h"
#include "fuzz/catalog_rig.h"
#include "fuzz/input.h"

namespace gshm::core::fuzz {
namespace {

// Rows whose numbers mostly refer to other rows.
class Rows {
public:
    Rows(Input& input, const std::string& path) : input_(input), database_(std::move(*Database::open(path))) {}

    void write() {
        (void)database_.execute("BEGIN");
        // Those that every catalog has: the devices, and the root directory.
        put_device(1, "memory:0");
        put_device(2, "memory:1");
        for (int i = 0; i < 40 && !input_.at_end(); ++i) {
            switch (input_.below(8)) {
                case 0: write_device(); break;
                case 1:
                case 2: write_extent(); break;
                case 3: write_value(); break;
                default: write_node();
            }
        }
        (void)database_.execute("COMMIT");
    }

private:
    uint64_t id() { return input_.below(8) == 0 ? input_.size() : input_.below(6); }
    std::string name() {
        static const char* const kNames[] = {"a", "b", "c", "", ".", "a/b", "..", "\xff"};
        return input_.below(4) == 0 ? input_.text(10) : kNames[input_.below(8)];
    }
    // With the row's sum, but for one in a few: else no other check would be reached.
    void finish(Statement& put) {
        (void)put.bind(input_.below(64) == 63 ? put.bound_sum() + 1 : put.bound_sum()).run();
    }
    void put_device(uint64_t number, const std::string& text) {
        auto put = database_.prepare("INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?)");
        if (!put) return;
        put->bind(number).bind_blob(text).bind_blob("");
        finish(*put);
    }
    void write_device() {
        const auto text = name();
        put_device(id(), text);
    }
    void write_value() {
        static const char* const kKeys[] = {"next_node", "next_key", "instance"};
        const auto value = input_.text(20);
        auto put = database_.prepare("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)");
        if (!put) return;
        put->bind_blob(kKeys[input_.below(3)]).bind_blob(value);
        finish(*put);
    }
    void write_extent() {
        auto put = database_.prepare("INSERT OR REPLACE INTO extents VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
        if (!put) return;
        const auto reach = input_.text(4);
        static constexpr uint64_t kSizes[] = {0, 256, 65536, 2 << 20};
        put->bind(id()).bind(id()).bind(uint64_t{input_.below(4)});
        put->bind(input_.below(8) == 0 ? input_.size() : kSizes[input_.below(4)]).bind(input_.size());
        for (int i = 0; i < 4; ++i) put->bind(uint64_t{input_.below(2)});
        put->bind(uint64_t{input_.below(2)}).bind(uint64_t{input_.below(2)}).bind(uint64_t{0644}).bind_blob(reach);
        const auto handle = input_.below(4) == 0 ? input_.text(64) : std::string();
        put->bind(uint64_t{input_.below(2)}).bind(uint64_t{input_.below(2)}).bind_blob(handle);
        finish(*put);
    }
    void number_or_null(Statement& put, uint64_t value) {
        if (input_.below(16) == 0) put.bind_null();
        else put.bind(value);
    }
    void write_node() {
        auto put = database_.prepare(
            "INSERT OR REPLACE INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
        if (!put) return;
        const auto text = name();
        const auto target = input_.text(10);
        const auto more = input_.below(4) == 0 ? input_.text(60) : std::string();
        put->bind(id()).bind(uint64_t{input_.below(32) == 0 ? 9 : 1 + input_.below(4)}).bind(uint64_t{0644});
        put->bind(uint64_t{input_.below(2)}).bind(uint64_t{input_.below(2)});
        for (int i = 0; i < 4; ++i) put->bind(uint64_t{1});
        number_or_null(*put, id());                                                    // parent
        number_or_null(*put, input_.below(8) == 0 ? input_.size() : input_.below(8));  // cookie
        put->bind_blob(text);
        number_or_null(*put, input_.below(4));  // device
        put->bind(uint64_t{1 + input_.below(2)}).bind(uint64_t{input_.below(8)});
        put->bind(input_.size()).bind(id()).bind(input_.below(4) == 0 ? input_.size() : 256 * input_.below(4));
        put->bind(uint64_t{input_.below(3)});  // creator
        put->bind(uint64_t{1}).bind(uint64_t{1}).bind(uint64_t{input_.below(2)}).bind_blob(target);
        put->bind(uint64_t{0010000}).bind(uint64_t{0});
        if (more.empty()) put->bind_null();
        else put->bind_blob(more);
        finish(*put);
    }

    Input& input_;
    Database database_;
};

void run(Input input) {
    const auto path = fresh_catalog();
    const bool salvage = input.below(2) != 0;
    if (input.below(4) == 0) {
        write_file(path, input.take_all());
    } else {
        require(Catalog::create(path).has_value(), "a catalog can be made");
        Rows(input, path).write();
    }
    load(path, salvage, nullptr);
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

// Headers, indexes and attributes of tensors: any text is read or refused, and a table that was read is consistent and
// comes out the same when it is written and read again. The first byte chooses the parser.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tensors/facts.h"
#include "tensors/index.h"
#include "tensors/table.h"

namespace {

using namespace gshm::core::tensors;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

void check_table(const Table& table, Gaps gaps) {
    uint64_t at = table.header().size();
    std::vector<NewTensor> copies;
    for (const auto& tensor : table.tensors()) {
        require(tensor.offset >= at && tensor.bytes <= table.size_bytes() - tensor.offset, "tensors are in the file");
        require(gaps == Gaps::permitted || tensor.offset == at, "a file has no gaps");
        at = tensor.offset + tensor.bytes;
        require(table.find(table.name(tensor)) == &tensor, "a tensor is found by its name");
        copies.push_back({table.name(tensor), tensor.dtype, table.shape(tensor)});
        const auto shape = table.shape(tensor);
        for (size_t i = 0; i < shape.size(); ++i) {
            const auto half = cut(tensor.dtype, shape, i, shape[i] / 2, shape[i]);
            if (!half || half->count == 0) continue;
            require(half->offset + half->stride * (half->count - 1) + half->bytes <= tensor.bytes, "a slice is inside");
        }
    }
    require(at <= table.size_bytes() && (gaps == Gaps::permitted || at == table.size_bytes()),
            "a file ends with a tensor");
    for (const auto layout : {Layout::object, Layout::file}) {
        const auto written = Table::lay_out(copies, table.metadata(), layout);
        if (!written) continue;  // larger than any object
        const auto again = Table::parse(written->header(), written->size_bytes(),
                                        layout == Layout::object ? Gaps::permitted : Gaps::refused);
        require(again.has_value(), "what is written can be read");
        require(again->tensors().size() == copies.size() && again->metadata() == table.metadata(), "nothing is lost");
        for (const auto& copy : copies) require(again->find(copy.name) != nullptr, "names are the same");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 5) {
        case 0: (void)parse_index(text); break;
        case 1: {
            const auto facts = parse_facts(text);
            if (facts) require(parse_facts(to_text(*facts)).has_value(), "facts can be read again");
            break;
        }
        case 2: {  // the length is that of the input
            const auto table = Table::parse(text, text.size() + data[0], Gaps::refused);
            if (table) check_table(*table, Gaps::refused);
            break;
        }
        default: {  // the length is put right
            const auto gaps = data[0] % 5 == 3 ? Gaps::refused : Gaps::permitted;
            std::string header;
            for (size_t i = 0; i < 8; ++i) header.push_back(static_cast<char>(text.size() >> (8 * i)));
            header += text;
            const uint64_t data_bytes = data[0] >= 250 ? UINT64_MAX - header.size() : data[0];
            const auto table = Table::parse(header, header.size() + data_bytes, gaps);
            if (table) check_table(*table, gaps);
        }
    }
    return 0;
}

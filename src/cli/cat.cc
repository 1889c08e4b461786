#include <algorithm>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/streams.h"

namespace gshm::cli {

int cmd_cat(Context& context, const CatArgs& args) {
    auto object = context.open(args.name);
    const uint64_t size = object.size();
    if (args.offset > size)
        throw Failure::usage(fmt::format("--offset {}: {} has {} bytes", args.offset, args.name, size));
    // A range beyond the end is shortened, as read(2) does.
    const uint64_t end = args.offset + std::min(args.length.value_or(size), size - args.offset);

    std::string chunk(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, end - args.offset)), '\0');
    for (uint64_t offset = args.offset; offset < end;) {
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(chunk.size(), end - offset));
        check(object.copy_out(std::span(chunk).first(bytes), offset), args.name);
        write_stdout({chunk.data(), bytes});
        offset += bytes;
    }
    return 0;
}

}  // namespace gshm::cli

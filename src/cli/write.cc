#include <algorithm>
#include <cerrno>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/streams.h"

namespace gshm::cli {
namespace {

Object open_for_writing(Context& context, const std::string& name) {
    auto object = context.client().open(name, {.write = true, .map = false});
    if (!object && object.error().code == EPERM)
        throw Failure::of_error(object.error(), name,
                                "a sealed object does not change: write a new one and `gshm mv` it over this name");
    return check(std::move(object), name);
}

}  // namespace

int cmd_write(Context& context, const WriteArgs& args) {
    auto object = open_for_writing(context, args.name);
    const uint64_t size = object.size();
    if (args.offset > size)
        throw Failure::usage(fmt::format("--offset {}: {} has {} bytes", args.offset, args.name, size));

    std::string chunk(kChunkBytes, '\0');
    uint64_t offset = args.offset;
    for (;;) {
        const size_t bytes = read_all(STDIN_FILENO, chunk.data(), chunk.size(), "standard input");
        const auto fits = static_cast<size_t>(std::min<uint64_t>(bytes, size - offset));
        if (fits > 0) check(object.copy_in(std::span(chunk).first(fits), offset), args.name);
        offset += fits;
        if (fits < bytes)
            throw Failure(EFBIG,
                          fmt::format("{}: the input is longer than the object: {} bytes were written, up to its "
                                      "end at {}",
                                      args.name, offset - args.offset, size),
                          "create an object that is large enough: an object does not grow");
        if (bytes < chunk.size()) break;
    }
    if (context.json()) {
        Record record;
        record.add("name", args.name).add("offset", args.offset).add("bytes", offset - args.offset);
        context.print(record);
    }
    return 0;
}

}  // namespace gshm::cli

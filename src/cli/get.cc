#include <algorithm>

#include "commands.h"
#include "context.h"
#include "destination.h"
#include "interrupt.h"
#include "progress.h"
#include "streams.h"

namespace gshm::cli {

int cmd_get(Context& context, const GetArgs& args) {
    if (args.file == "-") throw Failure::usage("get writes to a file", "for standard output use `gshm cat NAME`");
    const auto object = context.open(args.name, 0);
    const uint64_t size = gshm_size(object.get());

    const InterruptGuard interrupt;
    auto destination = Destination::create(args.file, args.name.substr(args.name.rfind('/') + 1), size);
    Progress progress(args.name, size, !context.json());
    std::string chunk(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, size)), '\0');
    for (uint64_t offset = 0; offset < size;) {
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(chunk.size(), size - offset));
        check(gshm_copy_out(object.get(), offset, chunk.data(), bytes), args.name);
        destination.write(chunk.data(), bytes);
        offset += bytes;
        progress.update(offset);
        interrupt.throw_if_interrupted();
    }
    destination.commit();
    if (context.json()) {
        Record record;
        record.add("name", args.name)
            .add("file", destination.path())
            .add("bytes", size)
            .add("seconds", progress.seconds());
        context.print(record);
    }
    return 0;
}

}  // namespace gshm::cli

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"
#include "cli/support/lifetime.h"

namespace gshm::cli {

int cmd_create(Context& context, const CreateArgs& args) {
    const auto& client = context.client();
    auto object = check(client.create({.name = args.name,
                                       .size_bytes = args.size_bytes,
                                       .device = args.device,
                                       .mode = args.mode,
                                       .keep = !args.lifetime.ephemeral,
                                       .compressible = args.compressible,
                                       .dedicated = args.dedicated,
                                       .map = false,
                                       .ttl = std::chrono::milliseconds(args.lifetime.ttl_ms),
                                       .ttl_unused = args.lifetime.ttl_unused,
                                       .ephemeral = args.lifetime.ephemeral,
                                       .evictable = args.evictable}),
                        args.name);
    if (args.fill) {
        if (const auto filled = object.fill(*args.fill); !filled) {
            (void)client.unlink(args.name);
            throw Failure::of_error(filled.error(), args.name);
        }
    }
    if (context.json()) context.print(stat_record(args.name, check(object.stat(), args.name)));
    if (args.lifetime.ephemeral) {
        object.close();
        hold_until_interrupted(context, {args.name});
    }
    return 0;
}

}  // namespace gshm::cli

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/describe.h"

namespace gshm::cli {

int cmd_create(Context& context, const CreateArgs& args) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = args.name.c_str();
    spec.size_bytes = args.size_bytes;
    spec.mode = args.mode;
    spec.device = args.device.empty() ? nullptr : args.device.c_str();
    spec.flags = GSHM_KEEP | GSHM_NO_MAP;
    if (args.compressible) spec.flags |= GSHM_COMPRESSIBLE;
    if (args.dedicated) spec.flags |= GSHM_DEDICATED;

    gshm_client* client = context.client();
    gshm_object* handle = nullptr;
    check(gshm_create(client, &spec, &handle), args.name);
    const Object object(handle);
    if (args.fill) {
        if (const int status = gshm_fill(handle, 0, args.size_bytes, *args.fill); status < 0) {
            const auto failure = Failure::of_status(status, args.name);
            gshm_unlink(client, args.name.c_str());
            throw failure;
        }
    }
    if (context.json()) {
        auto info = sized<gshm_stat_info>();
        check(gshm_stat_object(handle, &info), args.name);
        context.print(stat_record(args.name, info));
    }
    return 0;
}

}  // namespace gshm::cli

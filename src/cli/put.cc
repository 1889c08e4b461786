#include <algorithm>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/complaints.h"
#include "cli/support/context.h"
#include "cli/copy/copies.h"
#include "cli/support/progress.h"
#include "cli/copy/put_object.h"
#include "cli/copy/put_plan.h"

namespace gshm::cli {
namespace {

std::vector<PutItem> take(std::vector<PutItem>& items, PutItem::Kind kind) {
    std::vector<PutItem> taken;
    for (auto& item : items)
        if (item.kind == kind) taken.push_back(std::move(item));
    std::erase_if(items, [&](const PutItem& item) { return item.kind == kind; });
    return taken;
}

void make_directory(Context& context, const std::string& name) {
    gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
    spec.kind = GSHM_KIND_DIRECTORY;
    spec.name = name.c_str();
    if (const int status = gshm_make(context.client(), &spec); status < 0 && status != -EEXIST)
        throw Failure::of_status(status, name);
}

// By this thread, and with signals as they are: there is nothing to clear away, and a read that waits ends at once.
Copied put_one_stream(Context& context, const PutItem& item, const PutArgs& args) {
    Progress progress(item.name, args.size_bytes.value_or(0), !context.json());
    uint64_t done = 0;
    CopyWatch watch(
        [&](uint64_t bytes) {
            progress.update(done += bytes);
            return true;
        },
        args.verify);
    return put_stream(context.client(), item, args.replace, args.size_bytes, watch);
}

}  // namespace

int cmd_put(Context& context, const PutArgs& args) {
    Complaints complaints(context);
    auto plan = plan_put(context, args, complaints);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Copied> done;
    const auto guarded = [&](const auto& body) {
        try {
            body();
        } catch (const Failure& failure) {
            complaints.fail(failure);
        }
    };
    for (const auto& item : take(plan.items, PutItem::Kind::directory))
        guarded([&] { make_directory(context, item.name); });
    for (const auto& item : take(plan.items, PutItem::Kind::stream))
        guarded([&] { done.push_back(put_one_stream(context, item, args)); });

    std::vector<uint64_t> sizes;
    for (const auto& item : plan.items) sizes.push_back(item.size_bytes);
    Copies copies(context, sizes.size() == 1 ? plan.items[0].name : fmt::format("{} files", sizes.size()), sizes,
                  args.verify, Job::Clearing::by_ending);
    copies.run([&](gshm_client* client, size_t index, CopyWatch& watch) {
        return put_file(client, plan.items[index], args.replace, watch);
    });
    complaints.note(copies.exit_code());
    for (const auto& copied : copies.done())
        if (copied) done.push_back(*copied);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    print_copies(context, done, plan.single, seconds.count());
    return complaints.exit_code();
}

}  // namespace gshm::cli

// Names per second that one client looks up and opens, in batches of 64, among 10,000.
#include "support.h"

namespace gshm::core::bench {
namespace {

constexpr size_t kDepth = 64;
constexpr size_t kObjects = 10'000;

// Calls body with the next 64 names, cyclically.
template <typename Body>
void in_batches(benchmark::State& state, const Names& names, Body&& body) {
    size_t at = 0;
    for (auto _ : state) {
        body(names.data() + at);
        at += kDepth;
        if (at + kDepth > names.size()) at = 0;
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kDepth));
}

int run_all(int argc, char** argv) {
    const Daemon daemon;
    const auto client = connect(daemon);
    const auto device = choose_device(client.get());
    Names names("lookup/group/", kObjects);
    populate(client.get(), names, 4096, device.name);
    names.shuffle();
    const auto held = hold_extents(client.get(), names);
    const std::string label = describe(device);

    return bench::run(argc, argv, [&] {
        benchmark::RegisterBenchmark("lookup/open", [&](benchmark::State& state) {
            Objects objects(kDepth);
            in_batches(state, names, [&](const char* const* batch) {
                objects.open(client.get(), batch);
                objects.close();
            });
            state.SetLabel(label);
        })->UseRealTime();
        benchmark::RegisterBenchmark("lookup/stat", [&](benchmark::State& state) {
            std::vector<gshm_stat_info> infos(kDepth);
            std::vector<int> status(kDepth);
            infos[0].struct_size = sizeof infos[0];
            in_batches(state, names, [&](const char* const* batch) {
                check(gshm_stat_batch(client.get(), batch, kDepth, infos.data(), status.data()), "stat_batch");
            });
            state.SetLabel(label);
        })->UseRealTime();
    });
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    return gshm::core::bench::run_all(argc, argv);
}

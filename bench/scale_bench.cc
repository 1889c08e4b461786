// The cost of an object among many: the same batches against a store of 1,000 and one of 100,000 objects, each in a
// daemon of its own, on host memory.
//
// The counter per_object is the cost of one object: nanoseconds of processor time of the daemon and this process, so
// that other load on the machine does not matter. For memory/ it is bytes.
#include "support.h"

namespace gshm::core::bench {
namespace {

constexpr size_t kBatch = 200;
constexpr uint64_t kObjectBytes = 256;

// A daemon with that many objects in one directory, and a client that has all of them mapped.
class Store {
public:
    explicit Store(size_t count)
        : daemon_({"host"}),
          client_(connect(daemon_)),
          names_("scale/names/", count),
          shuffled_("scale/names/", count) {
        // The first objects of a kind have a fixed cost, which is excluded.
        populate(client_.get(), Names("scale/first/", 16), kObjectBytes, "host");
        const uint64_t before = anonymous_bytes(daemon_.pid());
        populate(client_.get(), names_, kObjectBytes, "host");
        check(gshm_ping(client_.get()), "ping");
        bytes_per_object_ = static_cast<double>(anonymous_bytes(daemon_.pid()) - before) / static_cast<double>(count);
        shuffled_.shuffle();
        held_ = hold_extents(client_.get(), names_);
    }

    size_t size() const { return names_.size(); }
    double bytes_per_object() const { return bytes_per_object_; }

    void create(benchmark::State& state) const {
        const Names more("scale/names/more-", kBatch);
        const auto wanted = specs(more, kObjectBytes, "host");
        Objects objects(kBatch);
        per_object(
            state, kBatch, [&] { objects.create(client_.get(), wanted); },
            [&] {
                objects.close();
                for (size_t i = 0; i < kBatch; ++i) check(gshm_unlink(client_.get(), more[i]), more[i]);
            });
    }
    void open_in_order(benchmark::State& state) const { open(state, names_); }
    void open_at_random(benchmark::State& state) const { open(state, shuffled_); }
    void list(benchmark::State& state) const {
        Listing listing;
        per_object(
            state, size(),
            [&] {
                gshm_listing* made = nullptr;
                check(gshm_list(client_.get(), "scale/names", 0, &made), "list");
                listing.reset(made);
            },
            [&] {
                if (gshm_listing_count(listing.get()) != size()) die("the listing is not complete");
                listing.reset();
            });
    }

private:
    void open(benchmark::State& state, const Names& names) const {
        size_t at = 0;
        Objects objects(kBatch);
        per_object(
            state, kBatch, [&] { objects.open(client_.get(), names.data() + at); },
            [&] {
                objects.close();
                check(gshm_ping(client_.get()), "ping");
                at = (at + kBatch) % names.size();
            });
    }
    // An iteration performs an operation on that many objects, which is measured, and undoes it, which is not.
    template <typename Do, typename Undo>
    void per_object(benchmark::State& state, size_t objects, Do&& act, Undo&& undo) const {
        Samples times;
        Samples costs;
        for (auto _ : state) {
            const CostMeter meter(daemon_.pid());
            const Stopwatch watch;
            act();
            times.add(state, watch.seconds());
            costs.add(meter.seconds());
            undo();
        }
        const double in_ns = 1e9 / static_cast<double>(objects);
        state.counters["per_object"] = costs.quartile_seconds() * in_ns;
        state.counters["elapsed_per_object"] = times.quartile_seconds() * in_ns;
    }

    Daemon daemon_;
    Client client_;
    Names names_;     // in order of creation
    Names shuffled_;  // in random order
    double bytes_per_object_ = 0;
    std::vector<Object> held_;
};

int run_all(int argc, char** argv) {
    const Store few(1000);
    const Store many(100'000);
    return bench::run(argc, argv, [&] {
        for (const Store* store : {&few, &many}) {
            const std::string count = "/" + std::to_string(store->size());
            auto add = [&](const char* name, void (Store::*body)(benchmark::State&) const) {
                benchmark::RegisterBenchmark((name + count).c_str(),
                                             [store, body](benchmark::State& state) { (store->*body)(state); })
                    ->UseManualTime()
                    ->Unit(benchmark::kMicrosecond);
            };
            add("create", &Store::create);
            add("open", &Store::open_in_order);
            add("open_at_random", &Store::open_at_random);
            add("list", &Store::list);
        }
        // Measured once, after the objects are created.
        benchmark::RegisterBenchmark("memory/100000", [&](benchmark::State& state) {
            for (auto _ : state) benchmark::DoNotOptimize(many.bytes_per_object());
            state.counters["per_object"] = many.bytes_per_object();
            state.counters["elapsed_per_object"] = 0;
        })->Iterations(1);
    });
}

}  // namespace
}  // namespace gshm::core::bench

int main(int argc, char** argv) {
    return gshm::core::bench::run_all(argc, argv);
}

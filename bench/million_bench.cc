// The cost of an object among 100,000 and among 1,000,000: million_bench [SMALL [LARGE]]. Evictable objects of 256 bytes on host
// memory, with a folder as their tier, in directories of 1,000. Times are processor time of the daemon and this process, so
// that other load on the machine does not matter; that of a restart counts from the start of the new daemon.
#include <cstdio>
#include <map>

#include "support.h"

namespace {

using namespace gshm::core::bench;

constexpr uint64_t kObjectBytes = 256;
constexpr size_t kSample = 2000;
constexpr double kBarScale = 1.5;
constexpr double kBarBytes = 600;

using Figures = std::map<std::string, double>;

std::string name_of(size_t index) {
    return "many/" + std::to_string(index / 1000) + "/" + std::to_string(index);
}

void create(gshm_client* client, size_t count) {
    constexpr size_t kBatch = 1000;
    for (size_t at = 0; at < count; at += kBatch) {
        std::vector<std::string> texts;
        for (size_t i = at; i < std::min(at + kBatch, count); ++i) texts.push_back(name_of(i));
        std::vector<gshm_create_spec> wanted;
        for (const auto& text : texts) {
            wanted.push_back(spec(text.c_str(), kObjectBytes, "host", GSHM_NO_MAP | GSHM_EVICTABLE));
        }
        Objects objects(texts.size());
        objects.create(client, wanted);
        objects.seal();
    }
}

Figures measure(size_t count) {
    std::string tier = (std::filesystem::temp_directory_path() / "gshm-tier-XXXXXX").string();
    check_errno(::mkdtemp(tier.data()) != nullptr, "mkdtemp");
    Figures figures;
    {
        Daemon daemon({"host"}, {"--tier", tier});
        Client client = connect(daemon);
        const uint64_t before = anonymous_bytes(daemon.pid());
        const CostMeter creating(daemon.pid());
        create(client.get(), count);
        figures["create, us"] = creating.seconds() * 1e6 / static_cast<double>(count);
        check(gshm_ping(client.get()), "ping");
        figures["memory of the daemon, bytes"] =
            static_cast<double>(anonymous_bytes(daemon.pid()) - before) / static_cast<double>(count);

        std::mt19937_64 random(1);
        std::vector<std::string> sample;
        for (size_t i = 0; i < kSample; ++i) sample.push_back(name_of(random() % count));
        std::sort(sample.begin(), sample.end());
        sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
        std::shuffle(sample.begin(), sample.end(), random);
        const double per_sample = 1e6 / static_cast<double>(sample.size());
        auto each = [&](const char* what, auto&& act) {
            const CostMeter meter(daemon.pid());
            for (const auto& name : sample) act(name.c_str());
            figures[what] = meter.seconds() * per_sample;
        };
        auto open_one = [&](const char* name) { open(client.get(), name, GSHM_NO_MAP); };
        for (const auto& name : sample) open_one(name.c_str());
        each("open, us", open_one);
        each("evict, us", [&](const char* name) { check(gshm_demote(client.get(), name, 0), name); });
        each("bring back, us", open_one);
        const CostMeter listing(daemon.pid());
        gshm_listing* made = nullptr;
        check(gshm_list(client.get(), "many", GSHM_RECURSIVE, &made), "list");
        figures["list, us"] = listing.seconds() * 1e6 / static_cast<double>(count);
        if (gshm_listing_count(made) != count) die("the listing is not complete");
        gshm_listing_free(made);

        daemon.kill_and_start();
        const Stopwatch watch;
        daemon.wait_until_it_serves();
        figures["restart, us"] = watch.seconds() * 1e6 / static_cast<double>(count);
    }
    std::error_code ignored;
    std::filesystem::remove_all(tier, ignored);
    return figures;
}

}  // namespace

int main(int argc, char** argv) {
    const size_t small = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100'000;
    const size_t large = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1'000'000;
    Figures few = measure(small);
    Figures many = measure(large);
    std::printf("%-30s %12zu %12zu   ratio\n", "per object", small, large);
    for (const auto& [what, figure] : many) {
        std::printf("%-30s %12.2f %12.2f   %5.2f\n", what.c_str(), few[what], figure, figure / few[what]);
    }
    std::printf("targets: at most %.1f times, and %.0f bytes\n", kBarScale, kBarBytes);
    return 0;
}

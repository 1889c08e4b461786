#include "daemon/tier_specs.h"

#include <algorithm>
#include <filesystem>

#include "base/size.h"

namespace gshm::core {
namespace {

Result<TierSpec> parse_tier(std::string_view text) {
    auto bad = [&](std::string_view why) {
        return fail(EINVAL, "'{}' is no tier: {} (examples: host:64G, /nvme/gshm:1T, /nvme/gshm:1T:keep)", text, why);
    };
    if (text == "none") return bad("`none` stands alone");
    TierSpec spec;
    spec.text = text;
    std::string_view rest = text;
    auto last = [&] { return rest.substr(std::min(rest.size(), rest.rfind(':') + 1)); };
    if (rest == "host" || rest.starts_with("host:")) {
        auto bytes = parse_size(rest == "host" ? "" : last());
        if (rest == "host" || !bytes) return bad("host memory needs a size");
        if (*bytes == 0) return bad("a tier of 0 bytes takes no object");
        spec.bytes = *bytes;
        return spec;
    }
    if (rest.ends_with(":keep")) {
        spec.keep = true;
        rest.remove_suffix(5);
    }
    // The text after the last colon is a size only if it looks like one; else it is a part of the path.
    if (rest.rfind(':') != rest.npos && !last().empty() && last()[0] >= '0' && last()[0] <= '9') {
        auto bytes = parse_size(last());
        if (!bytes) return bad(fmt::format("'{}' is not a size", last()));
        if (*bytes == 0) return bad("a tier of 0 bytes takes no object");
        spec.bytes = *bytes;
        rest = rest.substr(0, rest.rfind(':'));
    }
    if (rest.empty()) return bad("it is empty");
    if (rest.find('/') == rest.npos) return bad("it is neither `host` nor the path of a folder");
    if (rest.find(':') != rest.npos) return bad("the path of a folder has no ':', and the order is FOLDER:SIZE:keep");
    spec.folder = std::filesystem::absolute(rest).lexically_normal().string();
    while (spec.folder.size() > 1 && spec.folder.ends_with('/')) spec.folder.pop_back();
    spec.text = spec.folder + std::string(text.substr(rest.size()));
    return spec;
}

}  // namespace

Result<std::vector<TierSpec>> parse_tiers(const std::vector<std::string>& specs) {
    std::vector<TierSpec> tiers;
    if (specs.size() == 1 && specs[0] == "none") return tiers;
    for (const auto& spec : specs) tiers.push_back(TRY(parse_tier(spec)));
    std::ranges::stable_sort(tiers, {}, [](const TierSpec& tier) { return !tier.folder.empty(); });
    auto folders = std::ranges::count_if(tiers, [](const TierSpec& tier) { return !tier.folder.empty(); });
    if (folders > 1) return fail(EINVAL, "there is at most one folder");
    if (static_cast<size_t>(folders) + 1 < tiers.size()) return fail(EINVAL, "host is named twice");
    return tiers;
}

}  // namespace gshm::core

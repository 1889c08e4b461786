#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/core.h>

namespace gshm::core {
namespace {

constexpr size_t kLongest = 64;  // longer words are like none; the cost is quadratic

char plain(char c) {
    return c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// The distance of Damerau and Levenshtein, in which no letter is changed twice.
size_t distance(std::string_view one, std::string_view other) {
    std::vector<size_t> before(other.size() + 1), last(other.size() + 1), now(other.size() + 1);
    for (size_t j = 0; j <= other.size(); ++j) last[j] = j;
    for (size_t i = 1; i <= one.size(); ++i) {
        now[0] = i;
        for (size_t j = 1; j <= other.size(); ++j) {
            const bool same = plain(one[i - 1]) == plain(other[j - 1]);
            now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
            const bool swapped =
                i > 1 && j > 1 && plain(one[i - 1]) == plain(other[j - 2]) && plain(one[i - 2]) == plain(other[j - 1]);
            if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
        }
        before.swap(last);
        last.swap(now);
    }
    return last[other.size()];
}

bool begins_with(std::string_view longer, std::string_view shorter) {
    return shorter.size() >= 3 && longer.starts_with(shorter);
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
    if (word.empty() || word.size() > kLongest) return {};
    std::string_view best;
    size_t best_distance = SIZE_MAX;
    for (std::string_view candidate : known) {
        const size_t apart = distance(word, candidate);
        const bool similar = apart <= std::max<size_t>(1, std::min(word.size(), candidate.size()) / 3) ||
                             begins_with(candidate, word) || begins_with(word, candidate);
        if (!similar || apart >= best_distance) continue;
        best = candidate;
        best_distance = apart;
    }
    return best;
}

std::string nearest_hint(std::string_view word, std::span<const std::string_view> known, std::string_view prefix) {
    const auto found = nearest(word, known);
    return found.empty() ? std::string() : fmt::format("; did you mean {}{}?", prefix, found);
}

}  // namespace gshm::core

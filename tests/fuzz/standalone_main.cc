// The main of a fuzz target where the compiler has no libFuzzer: every corpus file as it is, then a fixed number of
// mutations of them. The random numbers are seeded, so a failure comes back when it is run again.
//
//   <target> [--runs N] [--seed N] [FILE or FOLDER]...
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

using Input = std::vector<uint8_t>;
using Random = std::mt19937_64;

constexpr size_t kMaxInputBytes = 4096;

size_t below(Random& random, size_t limit) {
    return static_cast<size_t>(random() % limit);
}

void run(const Input& input) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

// Bytes and lengths at which decoders go wrong sit at the edges of the integer types.
void overwrite_with_edge(Random& random, Input& input) {
    static constexpr std::array<uint64_t, 8> kEdges = {
        0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffffffffffff,
    };
    uint64_t edge = kEdges[below(random, kEdges.size())];
    size_t width = size_t{1} << below(random, 4);
    if (input.size() < width) return;
    std::memcpy(input.data() + below(random, input.size() - width + 1), &edge, width);
}

void mutate_once(Random& random, Input& input) {
    if (input.empty()) {
        input.push_back(static_cast<uint8_t>(random()));
        return;
    }
    size_t at = below(random, input.size());
    switch (below(random, 6)) {
        case 0: input[at] ^= static_cast<uint8_t>(1U << below(random, 8)); break;
        case 1: input[at] = static_cast<uint8_t>(random()); break;
        case 2: overwrite_with_edge(random, input); break;
        case 3: input.resize(at); break;
        case 4: input.insert(input.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(random())); break;
        default: {
            Input tail(input.begin() + static_cast<ptrdiff_t>(at), input.end());
            input.insert(input.end(), tail.begin(), tail.end());
        }
    }
    if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
}

Input read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void read_corpus(const std::filesystem::path& path, std::vector<Input>& corpus) {
    if (!std::filesystem::is_directory(path)) {
        corpus.push_back(read_file(path));
        return;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
        if (entry.is_regular_file()) corpus.push_back(read_file(entry.path()));
    }
}

}  // namespace

int main(int argc, char** argv) {
    uint64_t runs = 10'000;
    uint64_t seed = 1;
    std::vector<Input> corpus;
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        if ((argument == "--runs" || argument == "--seed") && i + 1 < argc) {
            (argument == "--runs" ? runs : seed) = std::strtoull(argv[++i], nullptr, 10);
        } else if (std::filesystem::exists(argument)) {
            read_corpus(argument, corpus);
        } else {
            std::fprintf(stderr, "%s: no such file or folder, and no option: %s\n", argv[0], argument.c_str());
            return 2;
        }
    }

    if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
    for (const Input& input : corpus) run(input);
    size_t from_files = corpus.size();
    corpus.emplace_back();  // the empty input is always worth starting from

    Random random(seed);
    for (uint64_t i = 0; i < runs; ++i) {
        Input input = corpus[below(random, corpus.size())];
        for (size_t n = 1 + below(random, 8); n > 0; --n) mutate_once(random, input);
        run(input);
    }
    std::printf("%zu corpus files and %llu mutations (seed %llu): no failure\n", from_files,
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
    return 0;
}

// golden_maker FOLDER: writes the messages of the tree's protocol, for tests/wire/golden/. Run once for each released
// protocol; messages.json says in words what the bytes are.
#include <cstdio>
#include <fstream>

#include "wire/as_json.h"
#include "wire/samples.h"
#include "wire/version.h"

int main(int argc, char** argv) {
    using namespace gshm::core::test;
    if (argc != 2) {
        fprintf(stderr, "usage: golden_maker FOLDER\n");
        return 2;
    }
    const std::string folder = argv[1];
    nlohmann::ordered_json messages;
    for (const Sample& sample : make_samples(gshm::core::wire::kProtocolHighest)) {
        std::ofstream(folder + "/" + sample.name + ".bin", std::ios::binary)
            .write(reinterpret_cast<const char*>(sample.bytes.data()),
                   static_cast<std::streamsize>(sample.bytes.size()));
        auto& entry = messages[sample.name];
        if (!sample.descriptors.empty()) entry["descriptors"] = sample.descriptors;
        entry["message"] = as_json(sample.bytes, sample.is_request);
    }
    std::ofstream index(folder + "/messages.json");
    index << messages.dump(1) << '\n';
    return index.good() ? 0 : 1;
}

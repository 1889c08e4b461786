// What the fuzz targets of the catalog share: a file for it, and the use of a store that was loaded from it.
#pragma once

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "catalog/catalog.h"
#include "fuse/known_nodes.h"
#include "store/files.h"
#include "support/store_rig.h"

namespace gshm::core::fuzz {

inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

// The path of a file that a catalog can be made in, and nothing is in yet.
inline std::string fresh_catalog() {
    static const std::string folder = [] {
        std::string pattern = access("/dev/shm", W_OK) == 0 ? "/dev/shm/gshm-fuzz-XXXXXX" : "/tmp/gshm-fuzz-XXXXXX";
        require(mkdtemp(pattern.data()) != nullptr, "there is a temporary folder");
        static std::string made = pattern;
        std::atexit([] {
            for (const auto& file : Catalog::files(made + "/gshm.db")) unlink(file.c_str());
            rmdir(made.c_str());
        });
        return pattern;
    }();
    for (const auto& file : Catalog::files(folder + "/gshm.db")) unlink(file.c_str());
    return folder + "/gshm.db";
}

// A file as an earlier daemon could have left it but for its bytes.
inline void write_file(const std::string& path, const std::string& bytes) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "a file is written");
    close(fd);
}

// All names, then all of them away.
inline void use(Store& store) {
    Files files(store);
    for (Node* node : files.all()) {
        auto* directory = as_directory(node);
        if (directory == nullptr) continue;
        uint64_t end = 0;
        for (const Link* link : directory->order.after(0, SIZE_MAX, &end)) {
            require(directory->children.find(link->name) == link, "an entry is found by its name");
            require(Files::child(*directory, link->name) == link->node, "an entry leads to its node");
        }
    }
    for (int round = 0; round < 50; ++round) {
        bool any = false;
        for (Node* node : files.all()) {
            auto* directory = as_directory(node);
            if (directory == nullptr) continue;
            uint64_t end = 0;
            const auto entries = directory->order.after(0, 1, &end);
            if (entries.empty()) continue;
            const std::string name = entries.front()->name;
            any = (entries.front()->node->kind == NodeKind::directory ? files.remove_directory(*directory, name)
                                                                      : files.unlink(*directory, name))
                      .has_value() ||
                  any;
            break;  // nodes may have gone with it
        }
        if (!any) break;
    }
    fuse::KnownNodes(files).forget_all();
}

// Loads it, and uses the store if that succeeds.
inline void load(const std::string& path, bool salvage, Journal* journal) {
    CatalogSum sum{};
    auto catalog = salvage ? Catalog::salvage(path, journal) : Catalog::open(path, sum, journal);
    if (!catalog) return;
    test::StoreRig rig;
    auto missing = (*catalog)->use_devices(rig.store.devices());
    if (!missing || !missing->empty()) return;
    Restorer restorer(rig.store, salvage ? Restorer::Mode::salvage : Restorer::Mode::strict);
    auto take = [&](const Catalog::Kept& kept) -> Result<std::shared_ptr<Extent>> {
        if (kept.size_bytes > 4 << 20) return nullptr;
        return TRY(rig.first.allocate(kept.size_bytes, {}));
    };
    if (!(*catalog)->load_extents(restorer, take) || !(*catalog)->load_nodes(restorer)) return;
    // check() would say that the rows are not those of the last commit, which the rest need not rely on.
    if (!restorer.finish(fuse::restore_known, [](const auto&) { return false; })) return;
    use(rig.store);
}

}  // namespace gshm::core::fuzz

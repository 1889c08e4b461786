// Names, their attributes and ids.
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "hostile/attack.h"
#include "hostile/client.h"
#include "hostile/raw_session.h"

namespace gshm::core::hostile {
namespace {

using Builder = RawSession::Builder;

constexpr unsigned kProcesses = 2;
constexpr size_t kRefusals = 1000;  // in a row: nothing more is granted
constexpr uint32_t kEmpty = GSHM_CREATE_EMPTY | GSHM_CREATE_NO_MAP | GSHM_CREATE_KEEP;

// Creates names in the largest batches; returns how many are granted.
size_t create_names(Client& client, const std::vector<std::string>& names) {
    std::vector<gshm_create_spec> specs;
    for (const auto& name : names) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name.c_str();
        spec.flags = kEmpty;
        specs.push_back(spec);
    }
    std::vector<gshm_object*> objects(names.size());
    std::vector<int> status(names.size(), -1);
    if (client.get() == nullptr) return 0;
    gshm_create_batch(client.get(), specs.data(), specs.size(), objects.data(), status.data());
    gshm_close_batch(objects.data(), objects.size());
    return static_cast<size_t>(std::ranges::count(status, 0));
}

void unlink_names(Client& client, const std::vector<std::string>& names) {
    std::vector<const char*> texts;
    for (const auto& name : names) texts.push_back(name.c_str());
    std::vector<int> status(names.size(), -1);
    if (client.get() != nullptr) gshm_unlink_batch(client.get(), texts.data(), texts.size(), status.data());
}

// Names with one value of std::hash, which is MurmurHash64A with a known seed: the second block of 8 bytes cancels the
// difference that the first one makes.
std::vector<std::string> names_of_one_hash(size_t count) {
    constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
    uint64_t inverse = kMultiplier;  // modulo 2^64, by Newton's method
    for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
    const auto mix = [](uint64_t value) { return value ^ value >> 47; };
    const uint64_t start = 0xc70f6907 ^ 16 * kMultiplier;
    std::mt19937_64 random(1);
    std::vector<std::string> names;
    while (names.size() < count) {
        uint64_t blocks[2] = {};
        for (int i = 0; i < 8; ++i) blocks[0] |= ('a' + random() % 26) << 8 * i;
        const uint64_t after_first = (start ^ mix(blocks[0] * kMultiplier) * kMultiplier) * kMultiplier;
        // The state after the second block is 0: its mixed value equals the state before it.
        blocks[1] = mix(after_first * inverse) * inverse;
        char text[17] = {};
        memcpy(text, blocks, 16);
        const auto is_plain = [](char c) { return c > 0 && c != '/'; };  // ASCII
        if (std::all_of(text, text + 16, is_plain)) names.emplace_back(text);
    }
    return names;
}

}  // namespace

void attributes(const Stage& stage) {
    Client client(stage.dir);
    const std::string value(64'000, 'v');
    size_t refusals = 0;
    for (uint64_t i = 0; stage.more() && refusals < kRefusals; ++i) {
        const std::string name = "at/a" + std::to_string(i / 16);
        if (i % 16 == 0) gshm_close(client.create(name, 0, kEmpty));
        const std::string attribute = "a" + std::to_string(i % 16);
        const bool granted =
            client.get() != nullptr &&
            gshm_set_attribute(client.get(), name.c_str(), attribute.c_str(), value.data(), value.size()) == 0;
        refusals = stage.did(granted) ? 0 : refusals + 1;
    }
    stage.progress->in_place = true;
    for (uint64_t i = 0;; ++i) {  // what is freed is taken again
        const std::string name = "at/more" + std::to_string(i);
        gshm_close(client.create(name, 0, kEmpty));
        if (client.get() == nullptr) usleep(1000);
        else if (gshm_set_attribute(client.get(), name.c_str(), "a", value.data(), value.size()) != 0) usleep(1000);
    }
}

void many_names(const Stage& stage) {
    Client client(stage.dir);
    const std::string part(200, 'n');
    size_t refused = 0;
    for (uint64_t i = 0; stage.more() && refused < kRefusals;) {
        std::vector<std::string> names;
        for (; names.size() < 500; ++i)
            names.push_back("at/" + std::to_string(i % 100) + part + "/" + part + std::to_string(i));
        const size_t granted = create_names(client, names);
        for (size_t n = 0; n < names.size(); ++n) stage.did(n < granted);
        refused = granted > 0 ? 0 : refused + names.size();
    }
    stage.hold();
}

void colliding_names(const Stage& stage) {
    auto names = names_of_one_hash(stage.number);
    const std::hash<std::string> hash;
    if (hash(names.front()) != hash(names.back())) stage.skip("std::hash of this library is another one");
    for (auto& name : names) name = "at/" + name;
    Client client(stage.dir);
    constexpr size_t kBatch = 1000;
    for (size_t i = 0; i < names.size(); i += kBatch) {
        const size_t end = std::min(names.size(), i + kBatch);
        const size_t granted =
            create_names(client, {names.begin() + static_cast<long>(i), names.begin() + static_cast<long>(end)});
        for (size_t n = i; n < end; ++n) stage.did(n - i < granted);
    }
    stage.progress->in_place = true;
    for (size_t i = 0;; i = (i + 1) % names.size()) {
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        if (client.get() == nullptr || gshm_stat(client.get(), names[i].c_str(), &info) != 0) usleep(100);
    }
}

void recursive_lists(const Stage& stage) {
    {
        Client client(stage.dir);
        const uint64_t objects = stage.number * 200;
        for (uint64_t i = 0; i < objects;) {
            std::vector<std::string> names;
            for (; names.size() < 1000; ++i) names.push_back("at/" + std::to_string(i % 37) + "/l" + std::to_string(i));
            create_names(client, names);
        }
    }
    stage.in_processes(kProcesses, [&](unsigned) {
        Client client(stage.dir);
        for (;;) {
            gshm_listing* listing = nullptr;
            if (!stage.did(client.get() != nullptr &&
                           gshm_list(client.get(), "", GSHM_LIST_RECURSIVE, &listing) == 0)) {
                usleep(1000);
            }
            gshm_listing_free(listing);
        }
    });
}

void batches(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned process) {
        Client client(stage.dir);
        std::vector<std::string> names;
        for (size_t i = 0; i < limits::kBatchItems; ++i) {
            names.push_back("at/" + std::to_string(process) + "-" + std::to_string(i));
        }
        for (;;) {
            if (!stage.did(create_names(client, names) > 0)) usleep(1000);
            unlink_names(client, names);
        }
    });
}

void guessed_ids(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned process) {
        RawSession session;
        for (uint64_t first = process;; first += limits::kBatchItems) {
            const bool connected = session.greet(stage.socket());
            std::vector<uint64_t> ids;
            for (uint64_t i = 0; i < limits::kBatchItems; ++i) ids.push_back(first + i);
            for (bool write : {false, true}) {
                const int error = connected ? session.ask(wire::RequestBody::OpenObjects,
                                                          [&](Builder& builder) {
                                                              const auto vector = builder.CreateVector(ids);
                                                              wire::OpenObjectsBuilder open(builder);
                                                              open.add_ids(vector);
                                                              open.add_write(write);
                                                              return open.Finish().Union();
                                                          })
                                            : -1;
                stage.did(error == 0);
            }
            for (uint64_t i = 0; connected && i < 50; ++i) {
                session.ask(wire::RequestBody::Copy, [&](Builder& builder) {
                    return wire::CreateCopy(builder, first + i, 0, 16, true).Union();
                });
                session.ask(wire::RequestBody::Fill,
                            [&](Builder& builder) { return wire::CreateFill(builder, first + i, 0, 16, 1).Union(); });
                session.ask(wire::RequestBody::Export,
                            [&](Builder& builder) { return wire::CreateExport(builder, first + i, 1, true).Union(); });
            }
        }
    });
}

// The bystander uses names in the directory "shared". Whatever is there is linked, renamed, replaced and removed, as far
// as gshmd lets this user.
void sticky_links(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned process) {
        Client client(stage.dir);
        for (uint64_t i = 0;; ++i) {
            gshm_client* connected = client.wait();
            const std::string own = "shared/" + std::to_string(process) + "-" + std::to_string(i % 50);
            gshm_make_spec link = GSHM_MAKE_SPEC_INIT;
            link.kind = GSHM_KIND_SYMLINK;
            link.name = own.c_str();
            link.target = i % 2 == 0 ? "../by/again" : "/etc/passwd";
            stage.did(gshm_make(connected, &link) == 0);
            gshm_listing* listing = nullptr;
            if (gshm_list(connected, "shared", 0, &listing) != 0) continue;
            for (size_t entry = 0; entry < gshm_listing_count(listing); ++entry) {
                const std::string name = std::string("shared/") + gshm_listing_name(listing, entry);
                if (name.starts_with("shared/0-") || name.starts_with("shared/1-")) continue;
                gshm_unlink(connected, name.c_str());
                gshm_rename(connected, own.c_str(), name.c_str(), GSHM_RENAME_REPLACE);
                gshm_rename(connected, name.c_str(), "at/taken", GSHM_RENAME_REPLACE);
                gshm_link(connected, name.c_str(), ("at/link" + std::to_string(i)).c_str());
                gshm_object* object = nullptr;
                if (gshm_open(connected, name.c_str(), GSHM_OPEN_WRITE | GSHM_OPEN_NO_MAP, &object) == 0)
                    gshm_close(object);
            }
            gshm_listing_free(listing);
            gshm_unlink(connected, own.c_str());
        }
    });
}

// An empty slab is kept for the next object of its owner, mode and directories.
void empty_slabs(const Stage& stage) {
    Client client(stage.dir);
    for (uint64_t i = 0;; ++i) {
        gshm_client* connected = client.wait();
        const std::string directory = "at/d" + std::to_string(i);
        gshm_make_spec made = GSHM_MAKE_SPEC_INIT;
        made.kind = GSHM_KIND_DIRECTORY;
        made.name = directory.c_str();
        made.mode = 0700;
        bool granted = gshm_make(connected, &made) == 0;
        const std::string name = directory + "/x";
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name.c_str();
        spec.size_bytes = 256;
        spec.mode = 0400 | static_cast<uint32_t>(i % 256);
        spec.flags = GSHM_CREATE_NO_MAP;
        gshm_object* object = nullptr;
        granted = granted && gshm_create(connected, &spec, &object) == 0;
        gshm_close(object);
        gshm_unlink(connected, name.c_str());
        gshm_unlink(connected, directory.c_str());
        if (!stage.did(granted)) usleep(1000);
    }
}

}  // namespace gshm::core::hostile

// Users of the library: one kind writes; the other reads the objects of all writers and holds them.
#include "integration/torture/library_user.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <unistd.h>
#include <vector>

#include "gshm/gshm.h"
#include "support/pattern.h"

namespace gshm::core::torture {
namespace {

using test::Random;

constexpr uint64_t kSizes[] = {8, 100, 1000, 4096, 5000, 70'000, 300'000, 1 << 20, (3 << 20) + 5};

class Writer {
public:
    explicit Writer(const Task& task) : task_(task), journal_(*task.journal), random_(task.seed) {}

    std::string run() {
        if (auto wrong = connect(task_, &client_); !wrong.empty()) return wrong;
        // The drafts of the previous process, which was killed, are reclaimed.
        own_drafts_ = false;
        if (auto wrong = settle(); !wrong.empty()) return wrong;
        own_drafts_ = true;
        while (!task_.shared->stop) {
            if (task_.shared->pause) {
                journal_.paused = true;
                usleep(500);
                continue;
            }
            journal_.paused = false;
            if (auto wrong = take_step(); !wrong.empty()) return wrong;
        }
        return {};
    }

private:
    std::string take_step() {
        const auto slot = static_cast<unsigned>(random_.below(kTemporary));
        const Version& now = journal_.slots[slot];
        switch (random_.below(8)) {
            case 0:
            case 1:
            case 2:
                if (!now.exists()) return publish(slot);
                if (auto wrong = publish(kTemporary); !wrong.empty()) return wrong;
                if (!journal_.slots[kTemporary].exists()) return {};  // it was interrupted
                return rename(kTemporary, slot);
            case 3: return now.exists() ? unlink(slot) : publish(slot);
            case 4: {
                const auto other = static_cast<unsigned>(random_.below(kTemporary));
                return now.exists() && other != slot ? rename(slot, other) : std::string();
            }
            case 5:
            case 6: return now.exists() ? attribute(slot) : publish(slot);
            default: {
                Version actual;
                if (auto wrong = look(slot, &actual); !wrong.empty()) return wrong;
                return actual == now ? "" : name(slot) + " is " + describe(actual) + ", not " + describe(now);
            }
        }
    }

    // 0: done. ECONNRESET: unknown. Other codes are errors.
    std::string end_step(const char* what, int code) {
        if (code == 0) {
            journal_.finish(true);
            return {};
        }
        if (code == -ECONNRESET) return settle();
        // The readers hold what has filled the GPU.
        if (code == -ENOSPC && task_.tiers) {
            journal_.finish(false);
            return {};
        }
        return failed(what, code);
    }

    std::string publish(unsigned slot) {
        if (journal_.slots[slot].exists()) {
            if (auto wrong = unlink(slot); !wrong.empty()) return wrong;
            if (journal_.slots[slot].exists()) return {};
        }
        Step step{.a = slot, .b = slot, .a_before = {}, .b_before = {}, .a_after = {}, .b_after = {}};
        step.a_after = {random_.next() | 1, kSizes[random_.below(std::size(kSizes))], 0};
        step.b_after = step.a_after;
        const uint64_t shape = random_.next();
        journal_.begin(step);
        const std::string path = name(slot);
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = path.c_str();
        spec.size_bytes = step.a_after.bytes;
        spec.device = task_.cuda && shape % 3 != 0 ? "cuda:0" : "host";
        spec.flags = (shape >> 8) % 4 == 0 ? GSHM_DEDICATED : 0;
        if ((shape >> 16) % 3 == 0) spec.flags |= GSHM_NO_MAP;
        if (task_.tiers) spec.flags |= GSHM_EVICTABLE;
        gshm_object* object = nullptr;
        int code = gshm_create(client_.get(), &spec, &object);
        if (code != 0) return end_step("create", code);
        const std::string bytes = bytes_of(step.a_after);
        code = gshm_copy_in(object, 0, bytes.data(), bytes.size());
        if (code == 0) code = gshm_seal(object);
        gshm_close(object);
        return end_step("fill and seal", code);
    }

    std::string unlink(unsigned slot) {
        journal_.begin({.a = slot, .b = slot, .a_before = {}, .b_before = {}, .a_after = {}, .b_after = {}});
        return end_step("unlink", gshm_unlink(client_.get(), name(slot).c_str()));
    }

    std::string rename(unsigned from, unsigned to) {
        Step step{.a = from, .b = to, .a_before = {}, .b_before = {}, .a_after = {}, .b_after = journal_.slots[from]};
        journal_.begin(step);
        return end_step("rename", gshm_rename(client_.get(), name(from).c_str(), name(to).c_str(), GSHM_REPLACE));
    }

    std::string attribute(unsigned slot) {
        Step step{.a = slot, .b = slot, .a_before = {}, .b_before = {}, .a_after = journal_.slots[slot], .b_after = {}};
        step.a_after.attribute = random_.next() | 1;
        step.b_after = step.a_after;
        journal_.begin(step);
        return end_step("set_attribute", gshm_set_attribute(client_.get(), name(slot).c_str(), "number",
                                                            &step.a_after.attribute, sizeof(uint64_t)));
    }

    std::string look(unsigned slot, Version* ret_version) {
        for (int i = 0;; ++i) {
            bool draft = false;
            bool full = false;
            auto wrong = look_at(client_.get(), name(slot), random_.below(2) == 0 ? GSHM_NO_MAP : 0, ret_version,
                                 &draft, task_.tiers ? &full : nullptr);
            if (full && i < 12'000) {
                usleep(5'000);
                continue;
            }
            if (full) return name(slot) + " does not fit on the GPU any more";
            if (wrong.empty()) journal_.checks.fetch_add(1);
            if (!wrong.empty() || !draft) return wrong;
            if (own_drafts_) {
                if (int code = gshm_unlink(client_.get(), name(slot).c_str());
                    code != 0 && code != -ECONNRESET && code != -ENOENT) {
                    return failed("unlink of a draft", code);
                }
            }
            if (i == 12'000) return name(slot) + " is not sealed, its maker is dead, and it is still there";
            usleep(5'000);
        }
    }

    std::string settle() {
        return torture::settle(journal_, {[this](unsigned slot, Version* found) { return look(slot, found); },
                                          [](unsigned) { return std::string("no step of the library is loose"); }});
    }
    std::string name(unsigned slot) const { return name_of(task_.number, slot); }

    const Task& task_;
    Journal& journal_;
    Random random_;
    ClientOwner client_;
    bool own_drafts_ = false;
};

struct Held {
    ObjectOwner object;
    std::string name;
    std::string bytes;
};

}  // namespace

std::string failed(const std::string& what, int code) {
    return what + ": " + strerror(-code) + " (" + gshm_last_error() + ")";
}

std::string connect(const Task& task, ClientOwner* ret_client) {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = task.dir.c_str();
    options.timeout_ms = 120'000;
    gshm_client* client = nullptr;
    if (int code = gshm_connect(&options, &client); code != 0) return failed("connect", code);
    ret_client->reset(client);
    return {};
}

std::string bytes_of(const Version& version) {
    std::string bytes = test::pattern(version.bytes, version.seed);
    memcpy(bytes.data(), &version.seed, std::min<size_t>(bytes.size(), sizeof version.seed));
    return bytes;
}

uint64_t seed_of(const std::string& bytes) {
    uint64_t seed = 0;
    memcpy(&seed, bytes.data(), std::min(bytes.size(), sizeof seed));
    return seed;
}

std::string describe_bytes(const std::string& bytes) {
    const std::string expected = bytes_of({seed_of(bytes), bytes.size(), 0});
    size_t first = 0;
    while (first < bytes.size() && bytes[first] == expected[first]) ++first;
    size_t zeros = 0;
    while (first + zeros < bytes.size() && bytes[first + zeros] == 0) ++zeros;
    return std::to_string(bytes.size()) + " bytes of seed " + std::to_string(seed_of(bytes)) + ", wrong from " +
           std::to_string(first) + " on, " + std::to_string(zeros) + " zeros there";
}

std::string look_at(gshm_client* client, const std::string& name, uint32_t flags, Version* ret_version, bool* ret_draft,
                    bool* ret_full) {
    *ret_version = {};
    *ret_draft = false;
    gshm_object* opened = nullptr;
    int code = gshm_open(client, name.c_str(), flags | GSHM_SEALED_ONLY, &opened);
    if (code == -ENOENT) return {};
    *ret_draft = code == -EBUSY;
    if (code == -EBUSY) return {};
    if (code == -ENOSPC && ret_full != nullptr) {
        *ret_full = true;
        return {};
    }
    if (code != 0) return failed("open " + name, code);
    ObjectOwner object(opened);
    std::string bytes(gshm_size(opened), '\0');
    if (code = gshm_copy_out(opened, 0, bytes.data(), bytes.size()); code != 0) return failed("read " + name, code);
    ret_version->seed = seed_of(bytes);
    ret_version->bytes = bytes.size();
    if (bytes != bytes_of(*ret_version)) return name + " has wrong bytes: " + describe_bytes(bytes);
    size_t length = 0;
    code = gshm_get_attribute(client, name.c_str(), "number", &ret_version->attribute, sizeof(uint64_t), &length);
    if (code != 0 && code != -ENODATA) return failed("attribute of " + name, code);
    return {};
}

std::string write_objects(const Task& task) {
    return Writer(task).run();
}

std::string read_objects(const Task& task) {
    ClientOwner client;
    Random random(task.seed);
    if (auto wrong = connect(task, &client); !wrong.empty()) return wrong;
    std::vector<Held> held;
    while (!task.shared->stop) {
        const bool pausing = task.shared->pause;
        // Checked before the close: the bytes are unchanged, even if the names have changed.
        if (!held.empty() && (pausing || held.size() > 12 || random.below(3) == 0)) {
            const size_t which = random.below(held.size());
            std::string bytes(held[which].bytes.size(), '\0');
            if (int code = gshm_copy_out(held[which].object.get(), 0, bytes.data(), bytes.size()); code != 0) {
                return failed("reading what is held: " + held[which].name, code);
            }
            if (bytes != held[which].bytes)
                return "what is held has changed: " + held[which].name + ": " + describe_bytes(bytes);
            task.journal->checks.fetch_add(1);
            if (pausing || held.size() > 12) held.erase(held.begin() + static_cast<ptrdiff_t>(which));
            continue;
        }
        task.journal->paused = pausing;
        if (pausing) {
            usleep(500);
            continue;
        }
        const std::string name =
            name_of(static_cast<unsigned>(random.below(2)), static_cast<unsigned>(random.below(kTemporary)));
        gshm_object* opened = nullptr;
        int code =
            gshm_open(client.get(), name.c_str(), GSHM_SEALED_ONLY | (random.below(3) == 0 ? GSHM_NO_MAP : 0), &opened);
        if (code == -ENOSPC && task.tiers) held.clear();
        if (code == -ENOENT || code == -EBUSY || (code == -ENOSPC && task.tiers)) {
            usleep(200);
            continue;
        }
        if (code != 0) return failed("open " + name, code);
        Held next{ObjectOwner(opened), name, std::string(gshm_size(opened), '\0')};
        if (code = gshm_copy_out(opened, 0, next.bytes.data(), next.bytes.size()); code != 0)
            return failed("read " + name, code);
        if (next.bytes != bytes_of({seed_of(next.bytes), next.bytes.size(), 0}))
            return name + " has wrong bytes: " + describe_bytes(next.bytes);
        held.push_back(std::move(next));
    }
    return {};
}

}  // namespace gshm::core::torture

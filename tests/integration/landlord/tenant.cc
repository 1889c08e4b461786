#include "integration/landlord/tenant.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <unistd.h>

#include "support/pattern.h"

namespace gshm::core::landlord {
namespace {

using test::Random;

constexpr uint64_t kSizes[] = {8, 1000, 4096, 70'000, 300'000, 1 << 20, (1 << 20) + 4096, 3 << 20};
constexpr size_t kMostHeld = 6;
constexpr unsigned kPrivate = 8;  // names of this tenant alone, which it knows exactly
constexpr unsigned kCommon = 40;  // names of all tenants of a user

// Of a landlord with little room, or of a race with another tenant.
bool is_ordinary(int code) {
    for (int known : {ENOSPC, EDQUOT, ENOENT, EEXIST, EBUSY, EPERM, EACCES, EOPNOTSUPP, EAGAIN, ESTALE}) {
        if (code == -known) return true;
    }
    return false;
}

class Tenant {
public:
    explicit Tenant(const Task& task) : task_(task), random_(task.seed) {}

    std::string run() {
        if (auto wrong = connect(task_.dir, &client_); !wrong.empty()) return wrong;
        own_ = "t" + std::to_string(task_.number) + "/";
        common_ = "u" + std::to_string(getuid()) + "/";
        // What a killed predecessor has left has a content of its own, and no ttl.
        for (unsigned i = 0; i < kPrivate; ++i) {
            if (auto wrong = settle(own_ + std::to_string(i)); !wrong.empty()) return wrong;
        }
        while (!task_.shared->stop) {
            if (task_.shared->pause) {
                if (auto wrong = let_go(0); !wrong.empty()) return wrong;
                task_.own->paused = true;
                usleep(1000);
                continue;
            }
            task_.own->paused = false;
            if (auto wrong = step(); !wrong.empty()) return wrong;
            ++task_.own->steps;
        }
        if (auto wrong = let_go(0); !wrong.empty()) return wrong;
        for (const auto& [name, seed] : known_) {
            if (auto wrong = look_at(name, seed); !wrong.empty()) return wrong;
        }
        return {};
    }

private:
    struct Held {
        ObjectOwner object;
        std::string name;
        uint64_t seed;
        uint64_t size;
        const void* data;  // mapped; null: copies go through the daemon
        std::string device;
    };

    std::string step() {
        const std::string mine = own_ + std::to_string(random_.below(kPrivate));
        const std::string any = common_ + std::to_string(random_.below(kCommon));
        switch (random_.below(16)) {
            case 0:
            case 1:
            case 2: return create(any, true);
            case 3: return create(mine, false);
            case 4:
            case 5:
            case 6: return hold(random_.below(3) == 0 ? mine : any);
            case 7: return let_go(held_.empty() ? 0 : held_.size() - 1);
            case 8: return check_held();
            case 9: {
                const auto known = known_.find(mine);
                return known == known_.end() ? create(mine, false) : look_at(mine, known->second);
            }
            case 10: return ordinary("pin", gshm_pin(client_.get(), any.c_str()));
            case 11: return ordinary("unpin", gshm_unpin(client_.get(), any.c_str()));
            case 12: return ordinary("demote", gshm_demote(client_.get(), (random_.below(2) ? any : mine).c_str(), 0));
            case 13:
                return ordinary("promote", gshm_promote(client_.get(), (random_.below(2) ? any : mine).c_str(), 0));
            case 14: {
                const uint64_t ttl_ms = random_.below(3) == 0 ? 0 : 1 + random_.below(5000);
                const uint32_t flags = random_.below(2) == 0 && ttl_ms != 0 ? uint32_t{GSHM_TTL_UNUSED} : 0;
                return ordinary("set_ttl", gshm_set_ttl(client_.get(), any.c_str(), ttl_ms, flags));
            }
            default:
                return random_.below(2) == 0 ? drop(mine) : ordinary("unlink", gshm_unlink(client_.get(), any.c_str()));
        }
    }

    // A refusal is an ordinary answer, and so is the end of gshmd during the call.
    std::string ordinary(const char* what, int code) {
        if (code == 0 || code == -ECONNRESET) return {};
        if (!is_ordinary(code)) return failed(what, code);
        ++task_.own->refused;
        return {};
    }

    // The bytes begin with their seed and size.
    static std::string bytes_of(uint64_t seed, uint64_t size) {
        std::string bytes = test::pattern(size, seed ^ size);
        memcpy(bytes.data(), &seed, sizeof seed);
        return bytes;
    }
    static uint64_t seed_of(const char* bytes) {
        uint64_t seed = 0;
        memcpy(&seed, bytes, sizeof seed);
        return seed;
    }

    std::string create(const std::string& name, bool is_common) {
        if (!is_common) {
            known_.erase(name);  // replaced, or unknown after an interruption
        }
        const uint64_t size = kSizes[random_.below(std::size(kSizes))];
        const uint64_t seed = random_.next();
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = name.c_str();
        spec.size_bytes = size;
        spec.mode = 0644;
        const auto& device = task_.devices[random_.below(task_.devices.size())];
        spec.device = device.c_str();
        spec.flags = GSHM_UNNAMED | GSHM_NO_MAP;
        if (random_.below(2) == 0) spec.flags |= GSHM_CREATE_EVICTABLE;
        if (is_common && random_.below(5) == 0) spec.flags |= GSHM_CREATE_EPHEMERAL;
        if (is_common && random_.below(2) == 0) {
            spec.ttl_ms = 1 + random_.below(3000);
            if (random_.below(2) == 0) spec.flags |= GSHM_CREATE_TTL_UNUSED;
        }
        gshm_object* made = nullptr;
        if (const int code = gshm_create(client_.get(), &spec, &made); code != 0) {
            return is_common ? ordinary("create", code) : unless_refused("create", code, name);
        }
        ObjectOwner object(made);
        const std::string bytes = bytes_of(seed, size);
        if (const int code = gshm_copy_in(made, 0, bytes.data(), bytes.size()); code != 0) {
            return is_common ? ordinary("copy_in", code) : unless_refused("copy_in", code, name);
        }
        const int code =
            is_common && random_.below(2) == 0 ? gshm_publish(made, name.c_str(), 0) : gshm_replace(made, name.c_str());
        if (is_common) return ordinary("publish", code);
        if (code == 0) known_[name] = seed;
        return code == 0 ? std::string() : unless_refused("replace", code, name);
    }
    // The former object may still be there.
    std::string unless_refused(const char* what, int code, const std::string& name) {
        if (auto wrong = ordinary(what, code); !wrong.empty()) return wrong;
        return settle(name);
    }
    // Learns the content of a private name.
    std::string settle(const std::string& name) {
        known_.erase(name);
        gshm_object* opened = nullptr;
        int code = -ECONNRESET;
        for (int i = 0; i < 50 && code == -ECONNRESET; ++i)
            code = gshm_open(client_.get(), name.c_str(), GSHM_NO_MAP, &opened);
        if (code != 0) return is_ordinary(code) ? std::string() : failed("open of an own object", code);
        ObjectOwner object(opened);
        uint64_t seed = 0;
        if (auto wrong = verify(opened, name, gshm_size(opened), nullptr, &seed); !wrong.empty()) return wrong;
        known_[name] = seed;
        return {};
    }
    std::string drop(const std::string& name) {
        known_.erase(name);
        const int code = gshm_unlink(client_.get(), name.c_str());
        return code == 0 ? std::string() : unless_refused("unlink", code, name);
    }

    // An object of this tenant alone, which nothing has removed: it must exist, with all its bytes.
    std::string look_at(const std::string& name, uint64_t seed) {
        gshm_object* opened = nullptr;
        int code = -ECONNRESET;
        while (code == -ECONNRESET)
            code = gshm_open(client_.get(), name.c_str(), GSHM_NO_MAP | GSHM_ANY_DEVICE, &opened);
        // An evicted object needs room to come back; it is not lost.
        if (code == -ENOSPC || code == -EDQUOT) return {};
        if (code != 0) return failed(name + " is lost", code);
        ObjectOwner object(opened);
        uint64_t found = 0;
        if (auto wrong = verify(opened, name, gshm_size(opened), nullptr, &found); !wrong.empty()) return wrong;
        return found == seed ? "" : name + " has other bytes than were written last";
    }

    std::string verify(gshm_object* object, const std::string& name, uint64_t size, const void* data,
                       uint64_t* ret_seed) {
        std::string copied;
        const char* bytes = static_cast<const char*>(data);
        if (bytes == nullptr) {
            copied.resize(size);
            int code = -ECONNRESET;
            while (code == -ECONNRESET) code = gshm_copy_out(object, 0, copied.data(), size);
            if (code != 0) return failed("copy of " + name, code);
            bytes = copied.data();
        }
        *ret_seed = seed_of(bytes);
        ++task_.own->checks;
        const uint64_t pattern = *ret_seed ^ size;
        const size_t wrong = sizeof(uint64_t) + test::first_wrong({bytes + 8, size - 8}, pattern, 8);
        return wrong == size ? ""
                             : name + ": byte " + std::to_string(wrong) + " of " + std::to_string(size) + " is wrong";
    }

    std::string hold(const std::string& name) {
        if (held_.size() >= kMostHeld) return let_go(kMostHeld - 1);
        // A mapping of a GPU's memory would need the driver, and the CPU could not read it.
        const bool maps = random_.below(2) == 0 &&
                          std::ranges::all_of(task_.devices, [](const auto& device) { return device == "host"; });
        gshm_object* opened = nullptr;
        const uint32_t flags = GSHM_OPEN_SEALED_ONLY | (maps ? 0u : uint32_t{GSHM_NO_MAP});
        const int code = gshm_open(client_.get(), name.c_str(), flags, &opened);
        if (code != 0) return ordinary("open", code);
        Held held{ObjectOwner(opened), name, 0, gshm_size(opened), maps ? gshm_data(opened) : nullptr, {}};
        if (held.data != nullptr && !is_host(opened, &held.device)) held.data = nullptr;  // the CPU cannot read it
        if (auto wrong = verify(opened, name, held.size, held.data, &held.seed); !wrong.empty()) return wrong;
        held_.push_back(std::move(held));
        return {};
    }
    bool is_host(gshm_object* object, std::string* ret_device) {
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        if (gshm_stat_object(object, &info) != 0) return false;
        *ret_device = info.device;
        return *ret_device == "host";
    }

    // Held objects stay where they are, with the same bytes.
    std::string check_held() {
        for (const Held& held : held_) {
            if (auto wrong = check(held); !wrong.empty()) return wrong;
        }
        return {};
    }
    std::string check(const Held& held) {
        uint64_t seed = 0;
        if (auto wrong = verify(held.object.get(), held.name + ", which is held", held.size, held.data, &seed);
            !wrong.empty()) {
            return wrong;
        }
        if (seed != held.seed) return held.name + ", which is held, has other bytes";
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        const int code = gshm_stat_object(held.object.get(), &info);
        if (code == -ECONNRESET) return {};
        if (code != 0) return failed("stat of " + held.name + ", which is held", code);
        if (info.size_bytes != held.size) return held.name + ", which is held, has another size";
        const bool moved = info.tier[0] != '\0' || (!held.device.empty() && held.device != info.device);
        return moved ? held.name + ", which is held, was moved" : std::string();
    }
    // Until so many are left.
    std::string let_go(size_t left) {
        while (held_.size() > left) {
            auto at = held_.begin() + static_cast<std::ptrdiff_t>(random_.below(held_.size()));
            if (auto wrong = check(*at); !wrong.empty()) return wrong;
            held_.erase(at);
        }
        return {};
    }

    const Task& task_;
    Random random_;
    ClientOwner client_;
    std::string own_;
    std::string common_;
    std::map<std::string, uint64_t> known_;  // seeds of private objects
    std::vector<Held> held_;
};

}  // namespace

std::string failed(const std::string& what, int code) {
    return what + ": " + strerror(-code) + ": " + gshm_last_error();
}

std::string connect(const std::string& dir, ClientOwner* ret_client) {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    options.dir = dir.c_str();
    options.timeout_ms = 120'000;  // gshmd is killed meanwhile
    gshm_client* client = nullptr;
    if (const int code = gshm_connect(&options, &client); code != 0) return failed("connect", code);
    ret_client->reset(client);
    return {};
}

std::string run_tenant(const Task& task) {
    return Tenant(task).run();
}

}  // namespace gshm::core::landlord

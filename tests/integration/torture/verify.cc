#include "integration/torture/verify.h"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <filesystem>
#include <map>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "catalog/sqlite.h"
#include "integration/torture/library_user.h"
#include "keeper/message.h"

namespace gshm::core::torture {
namespace {

// Closed memory is freed asynchronously: waits for that, up to a minute.
std::string eventually(const std::function<std::string()>& wrong) {
    std::string said;
    for (int i = 0; i < 12'000; ++i) {
        if (said = wrong(); said.empty()) return {};
        usleep(5'000);
    }
    return said;
}

// Reads through the library and copies of the daemon, with or without a mount.
std::string look_through_daemon(gshm_client* client, const std::string& name, Version* ret_version) {
    *ret_version = {};
    gshm_object* opened = nullptr;
    int code = gshm_open(client, name.c_str(), GSHM_NO_MAP, &opened);
    if (code == -ENOENT) return {};
    if (code != 0) return failed("open " + name, code);
    ObjectOwner object(opened);
    std::string bytes(gshm_size(opened), '\0');
    if (code = gshm_copy_out(opened, 0, bytes.data(), bytes.size()); code != 0) return failed("read " + name, code);
    *ret_version = {seed_of(bytes), bytes.size(), 0};
    if (bytes != bytes_of(*ret_version)) return name + " has wrong bytes: " + describe_bytes(bytes);
    size_t length = 0;
    code = gshm_get_attribute(client, name.c_str(), "number", &ret_version->attribute, sizeof(uint64_t), &length);
    return code == 0 || code == -ENODATA ? "" : failed("attribute of " + name, code);
}

std::string verify_use(gshm_client* client, uint64_t bytes) {
    gshm_device_info devices[8] = {};
    devices[0].struct_size = sizeof devices[0];
    size_t count = 0;
    if (int code = gshm_devices(client, devices, 8, &count); code != 0) return failed("devices", code);
    uint64_t in_objects = 0, unlinked = 0;
    for (size_t i = 0; i < count; ++i) {
        in_objects += devices[i].object_bytes;
        in_objects += devices[i].evicted_bytes;
        unlinked += devices[i].unlinked_bytes;
    }
    // Objects in the tier `host` count there, too.
    gshm_tier_info tiers[2] = {};
    tiers[0].struct_size = tiers[1].struct_size = sizeof tiers[0];
    if (int code = gshm_tiers(client, tiers, 2, &count); code != 0) return failed("tiers", code);
    if (count > 0) in_objects -= tiers[0].used_bytes;
    if (in_objects == bytes && unlinked == 0) return {};
    return "object_bytes is " + std::to_string(in_objects) + ", not " + std::to_string(bytes) + "; unlinked_bytes is " +
           std::to_string(unlinked);
}

std::string verify_keeper(gshm_client* client, const std::string& dir) {
    gshm_daemon_info daemon = {};
    daemon.struct_size = sizeof daemon;
    if (int code = gshm_daemon(client, &daemon); code != 0) return failed("daemon", code);
    const int64_t kept = kept_descriptors(dir);
    const auto extents = static_cast<int64_t>(daemon.extents);
    // Those of all extents but host files, which have names in a folder. In addition the ledger, and possibly the mount
    // and that folder.
    const int64_t fewest = geteuid() == 0 ? 1 : extents + 1;
    if (kept >= fewest && kept <= extents + 3) return {};
    return "the keeper holds " + std::to_string(kept) + " descriptors, and there are " + std::to_string(extents) +
           " extents";
}

std::string verify_folder(const std::string& folder, unsigned user, const Journal& journal) {
    DIR* listing = opendir(folder.c_str());
    if (listing == nullptr) return folder + ": " + strerror(errno);
    std::string wrong;
    size_t found = 0;
    while (const dirent* entry = readdir(listing)) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        bool known = false;
        for (unsigned slot = 0; slot < kSlots; ++slot) {
            known |= journal.slots[slot].exists() && folder_of(user) + "/" + name == name_of(user, slot);
        }
        if (!known) wrong = folder + "/" + name + " should not be there";
        ++found;
    }
    closedir(listing);
    size_t expected = 0;
    for (const Version& version : journal.slots) expected += version.exists() ? 1 : 0;
    if (wrong.empty() && found != expected) wrong = folder + " has too few entries";
    return wrong;
}

}  // namespace

std::string verify(const Task& task, unsigned first_mount_user, unsigned users, Verified* ret_verified) {
    ClientOwner client;
    if (auto wrong = connect(task, &client); !wrong.empty()) return wrong;
    uint64_t bytes = 0;
    std::map<std::string, Version> expected;
    for (unsigned user = 0; user < users; ++user) {
        for (unsigned slot = 0; slot < kSlots; ++slot) {
            const Version& version = task.shared->users[user].slots[slot];
            Version actual;
            if (auto wrong = look_through_daemon(client.get(), name_of(user, slot), &actual); !wrong.empty())
                return wrong;
            if (actual != version) {
                return name_of(user, slot) + " should be " + describe(version) + ", and is " + describe(actual);
            }
            if (!version.exists()) continue;
            expected[name_of(user, slot)] = version;
            bytes += version.bytes;
            ++ret_verified->objects;
        }
        const bool in_mount = !task.mount.empty() && user >= first_mount_user;
        if (in_mount) {
            auto wrong = verify_folder(task.mount + "/" + folder_of(user), user, task.shared->users[user]);
            if (!wrong.empty()) return wrong;
        }
    }
    gshm_listing* listing = nullptr;
    if (int code = gshm_list(client.get(), "", GSHM_RECURSIVE, &listing); code != 0) return failed("list", code);
    ListingOwner owner(listing);
    for (size_t i = 0; i < gshm_listing_count(listing); ++i) {
        const char* name = gshm_listing_name(listing, i);
        if (!expected.contains(name)) return std::string(name) + " should not be there";
    }
    if (gshm_listing_count(listing) != expected.size()) return "the listing has too few names";
    ret_verified->bytes += bytes;
    if (auto wrong = eventually([&] { return verify_use(client.get(), bytes); }); !wrong.empty()) return wrong;
    return eventually([&] { return verify_keeper(client.get(), task.dir); });
}

std::string verify_catalog(const std::string& dir, const std::string& scratch) {
    // A copy, since opening the catalog changes it.
    std::filesystem::remove_all(scratch);
    std::filesystem::create_directories(scratch);
    for (const char* file : {"gshm.db", "gshm.db-wal"}) {
        if (std::filesystem::exists(dir + "/" + file)) std::filesystem::copy(dir + "/" + file, scratch + "/" + file);
    }
    auto database = Database::open(scratch + "/gshm.db");
    if (!database) return "the catalog: " + database.error().message;
    auto check = database->prepare("PRAGMA integrity_check");
    if (!check) return "the catalog: " + check.error().message;
    std::string said;
    auto read = check->each([&] { said += check->blob(0); });
    if (!read) return "the catalog: " + read.error().message;
    return said == "ok" ? "" : "the catalog is not whole: " + said;
}

int64_t kept_descriptors(const std::string& dir) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/keeper.sock", dir.c_str());
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int64_t kept = -1;
    keeper::Message message = {};
    message.kind = keeper::Kind::sync;
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        ::send(fd, &message, bytes_of(message), MSG_NOSIGNAL) > 0 && ::recv(fd, &message, sizeof message, 0) > 0) {
        kept = static_cast<int64_t>(message.keys[1]);
    }
    ::close(fd);
    return kept;
}

}  // namespace gshm::core::torture

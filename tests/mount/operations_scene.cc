#include "mount/operations_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace gshm::core::test {
namespace {

int64_t to_ns(const statx_timestamp& time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

void look_into(const std::string& folder, const std::string& name, bool fresh, Sights& seen) {
    const std::string path = name == "." ? folder : folder + "/" + name;
    struct statx info = {};
    const int flags = AT_SYMLINK_NOFOLLOW | (fresh ? AT_STATX_FORCE_SYNC : AT_STATX_SYNC_AS_STAT);
    if (statx(AT_FDCWD, path.c_str(), flags, STATX_BASIC_STATS, &info) != 0) return;
    seen[name] = {info.stx_ino,          info.stx_mode,         info.stx_uid,
                  info.stx_gid,          info.stx_nlink,        static_cast<off_t>(info.stx_size),
                  to_ns(info.stx_atime), to_ns(info.stx_mtime), to_ns(info.stx_ctime)};
    if (!S_ISDIR(info.stx_mode)) return;
    DIR* listing = opendir(path.c_str());
    if (listing == nullptr) return;
    std::vector<std::string> names;
    while (const auto* entry = readdir(listing)) names.emplace_back(entry->d_name);
    closedir(listing);
    for (const auto& entry : names) {
        if (entry != "." && entry != "..") look_into(folder, name == "." ? entry : name + "/" + entry, fresh, seen);
    }
}

std::string kind_of(mode_t mode) {
    return S_ISDIR(mode) ? "directory" : S_ISREG(mode) ? "file" : S_ISLNK(mode) ? "symlink" : "special";
}

std::string changes(const Sight& before, const Sight& after) {
    std::string text;
    auto add = [&](bool differs, const char* what) { text += differs ? std::string(" ") + what : ""; };
    add(before.mode != after.mode, "mode");
    add(before.uid != after.uid, "uid");
    add(before.gid != after.gid, "gid");
    add(before.links != after.links, "links");
    // The size of a directory follows from its entries, and listing it changes its access time.
    const bool directory = S_ISDIR(after.mode);
    add(!directory && before.size != after.size, "size");
    add(!directory && before.accessed_ns != after.accessed_ns, "atime");
    add(before.modified_ns != after.modified_ns, "mtime");
    add(before.changed_ns != after.changed_ns, "ctime");
    return text;
}

std::string octal(mode_t mode) {
    char text[8];
    snprintf(text, sizeof text, "%o", mode & 07777);
    return text;
}

}  // namespace

std::string name_of(Column column) {
    return column == Column::library ? "library" : column == Column::mount ? "mount" : "command";
}

Client& Scene::client() {
    if (connected_by_ != getpid()) {
        auto connected = Client::connect({.dir = fixture_.dir()});
        if (!connected) fprintf(stderr, "%s\n", connected.error().message.c_str());
        else client_ = *std::move(connected);
        connected_by_ = getpid();
    }
    return client_;
}

int Scene::run(const std::vector<std::string>& args, std::string* ret_out, const std::string& input) {
    std::vector<std::string> all = {"--json"};
    all.insert(all.end(), args.begin(), args.end());
    const auto result = fixture_.run_cli(all, input);
    if (ret_out != nullptr) *ret_out = result.out;
    if (result.exit_code == 0) return 0;
    const auto said = nlohmann::json::parse(result.err.substr(0, result.err.find('\n')), nullptr, false);
    if (said.is_discarded() || !said.contains("error")) return -1;
    return said["error"].value("errno", -1);
}

void Scene::make_file(const std::string& name, mode_t mode) {
    EXPECT_TRUE(MountFixture::write_file(path(name), "bytes", O_EXCL)) << name << ": " << strerror(errno);
    EXPECT_EQ(chmod(path(name).c_str(), mode), 0);
    // Old times, so that a change is visible with any clock resolution.
    const timespec times[] = {{2000, 0}, {1000, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path(name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

void Scene::keep_open(const std::string& name, int flags) {
    files_.push_back(open(path(name).c_str(), flags | O_CLOEXEC));
    EXPECT_GE(files_.back(), 0);
}

void Scene::close_files() {
    for (int fd : files_) close(fd);
    files_.clear();
}

Sights look_at(const std::string& folder, bool fresh) {
    Sights seen;
    look_into(folder, ".", fresh, seen);
    return seen;
}

std::string difference(const Sights& before, const Sights& after) {
    auto named = [](const Sights& sights, ino_t inode) {
        return std::ranges::find_if(sights, [&](const auto& entry) { return entry.second.inode == inode; });
    };
    std::vector<std::string> lines;
    for (const auto& [name, now] : after) {
        auto same = before.find(name);
        if (same != before.end() && same->second.inode == now.inode) {
            if (auto text = changes(same->second, now); !text.empty()) lines.push_back(name + ":" + text);
            continue;
        }
        auto other = named(before, now.inode);
        if (other == before.end()) {
            lines.push_back("new " + name + " " + kind_of(now.mode) + " " + octal(now.mode) +
                            (now.gid == 0 ? "" : " group " + std::to_string(now.gid)));
            continue;
        }
        auto still = after.find(other->first);
        if (still != after.end() && still->second.inode == now.inode) lines.push_back(name + " is " + other->first);
        else lines.push_back(name + " was " + other->first + ":" + changes(other->second, now));
    }
    for (const auto& [name, was] : before) {
        if (!after.contains(name) && named(after, was.inode) == after.end()) lines.push_back("gone " + name);
    }
    std::string text;
    for (const auto& line : lines) text += (text.empty() ? "" : "; ") + line;
    return text;
}

}  // namespace gshm::core::test

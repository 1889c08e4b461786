// Reading directories. The order of entries depends on the file system; positions and the set of names do not.
#include <algorithm>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "mount/calls.h"
#include "mount/posix_scenarios.h"

namespace gshm::core::test {
namespace {

void make_many(Calls& c, const std::string& folder, int count) {
    c.mkdir(folder, 0755);
    for (int i = 0; i < count; ++i) c.make(fmt::format("{}/f{:04}", folder, i));
}

void every_entry_once(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    for (const int count : {0, 1, 100, 3000}) {
        const auto folder = fmt::format("d{}", count);
        make_many(c, folder, count);
        DIR* stream = ::opendir(c.at(folder).c_str());
        if (!stream) return recorder.line("opendir failed");
        std::multiset<std::string> seen;
        while (const dirent* entry = ::readdir(stream)) seen.insert(entry->d_name);
        ::closedir(stream);
        const std::set<std::string> distinct(seen.begin(), seen.end());
        recorder.line(fmt::format("  {}: {} entries, {} distinct, . {} times, .. {} times", folder, seen.size(),
                                  distinct.size(), seen.count("."), seen.count("..")));
    }
}

void types_and_inodes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    c.mkdir("d", 0755);
    c.make("d/file");
    c.mkdir("d/folder", 0755);
    c.symlink("file", "d/symlink");
    c.mknod("d/fifo", S_IFIFO | 0644);
    c.link("d/file", "d/hard");
    c.list("d");
    DIR* stream = ::opendir(c.at("d").c_str());
    if (!stream) return recorder.line("opendir failed");
    std::map<std::string, bool> matches;
    while (const dirent* entry = ::readdir(stream)) {
        struct stat st{};
        ::lstat(c.at(std::string("d/") + entry->d_name).c_str(), &st);
        matches[entry->d_name] = st.st_ino == entry->d_ino;
    }
    ::closedir(stream);
    for (const auto& [name, match] : matches)
        recorder.line(fmt::format("  {}: d_ino {} st_ino", name, match ? "is" : "is not"));
}

void positions(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    make_many(c, "d", 300);
    DIR* stream = ::opendir(c.at("d").c_str());
    if (!stream) return recorder.line("opendir failed");
    std::vector<long> before;  // the position before the entry of the same index
    std::vector<std::string> names;
    for (;;) {
        const long position = ::telldir(stream);
        const dirent* entry = ::readdir(stream);
        if (!entry) break;
        before.push_back(position);
        names.push_back(entry->d_name);
    }
    recorder.line(fmt::format("  {} entries", names.size()));
    int wrong = 0;
    for (size_t i = names.size(); i-- > 0;) {
        ::seekdir(stream, before[i]);
        const dirent* entry = ::readdir(stream);
        wrong += !entry || names[i] != entry->d_name;
    }
    recorder.line(fmt::format("  seekdir led {} times to another entry", wrong));
    const auto distinct = std::set<long>(before.begin(), before.end()).size();
    recorder.line(fmt::format("  {} distinct positions", distinct));
    ::rewinddir(stream);
    const dirent* first = ::readdir(stream);
    recorder.line(fmt::format("  rewinddir leads to the first: {}", first && names[0] == first->d_name));
    // Positions stay valid while other names are removed.
    for (size_t i = 0; i < names.size(); ++i)
        if (i % 2 == 1 && names[i][0] == 'f') ::unlink(c.at("d/" + names[i]).c_str());
    wrong = 0;
    for (size_t i = 0; i < names.size(); i += 2) {
        ::seekdir(stream, before[i]);
        const dirent* entry = ::readdir(stream);
        wrong += !entry || names[i] != entry->d_name;
    }
    recorder.line(fmt::format("  after deletions {} times to another entry", wrong));
    ::closedir(stream);
}

// As rm -r does: deleting the names that readdir returned reaches every name.
void deleting_while_reading(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    make_many(c, "d", 2000);
    DIR* stream = ::opendir(c.at("d").c_str());
    if (!stream) return recorder.line("opendir failed");
    int removed = 0, failed = 0;
    while (const dirent* entry = ::readdir(stream)) {
        if (entry->d_name[0] == '.') continue;
        (::unlink(c.at(std::string("d/") + entry->d_name).c_str()) == 0 ? removed : failed) += 1;
    }
    ::closedir(stream);
    recorder.line(fmt::format("  removed {}, failed {}", removed, failed));
    c.list("d");
    c.rmdir("d");
}

// Names that exist all the time appear exactly once while other names are created and removed.
void changing_while_reading(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    make_many(c, "d", 1000);
    DIR* stream = ::opendir(c.at("d").c_str());
    if (!stream) return recorder.line("opendir failed");
    std::map<std::string, int> times;
    int step = 0;
    while (const dirent* entry = ::readdir(stream)) {
        ++times[entry->d_name];
        if (++step > 1000) continue;
        const auto passing = c.at(fmt::format("d/x{}", step));
        ::close(::open(passing.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        if (step % 2 == 0) ::rename(passing.c_str(), (passing + "y").c_str());
        ::unlink((step % 2 == 0 ? passing + "y" : passing).c_str());
    }
    ::closedir(stream);
    int once = 0, otherwise = 0;
    for (int i = 0; i < 1000; ++i) (times[fmt::format("f{:04}", i)] == 1 ? once : otherwise) += 1;
    recorder.line(fmt::format("  lasting names seen once: {}, otherwise: {}", once, otherwise));
}

void rewinding_sees_changes(Recorder& recorder, const std::string& dir) {
    Calls c(recorder, dir);
    make_many(c, "d", 3);
    DIR* stream = ::opendir(c.at("d").c_str());
    if (!stream) return recorder.line("opendir failed");
    const auto names = [&] {
        std::set<std::string> set;
        while (const dirent* entry = ::readdir(stream)) set.insert(entry->d_name);
        std::string text;
        for (const auto& name : set) text += " " + name;
        return text;
    };
    recorder.line("  first:" + names());
    c.make("d/new");
    c.unlink("d/f0001");
    c.rename("d/f0002", "d/renamed");
    ::rewinddir(stream);
    recorder.line("  rewound:" + names());
    recorder.line("  at the end:" + names());
    ::rewinddir(stream);
    for (const auto* name : {"d/f0000", "d/new", "d/renamed"}) c.unlink(name);
    c.rmdir("d");
    errno = 0;
    const bool ended = ::readdir(stream) == nullptr;
    recorder.line(fmt::format("  readdir of a removed directory: {} {}", ended ? "none" : "some", errno_name(errno)));
    ::closedir(stream);
}

constexpr Scenario kScenarios[] = {
    {"directories_every_entry_once", every_entry_once, false},
    {"directories_types_and_inodes", types_and_inodes, false},
    {"directories_positions", positions, false},
    {"directories_deleting_while_reading", deleting_while_reading, false},
    {"directories_changing_while_reading", changing_while_reading, false},
    {"directories_rewinding", rewinding_sees_changes, false},
};

}  // namespace

std::span<const Scenario> directory_scenarios() {
    return kScenarios;
}

}  // namespace gshm::core::test

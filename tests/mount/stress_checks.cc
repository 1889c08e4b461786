#include "mount/stress_checks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <map>
#include <set>
#include <sys/stat.h>

#include <fmt/core.h>

#include "mount/recorder.h"

namespace gshm::core::test {
namespace {

struct Header {
    static constexpr uint64_t kMagic = 0x67736873'68617265;
    uint64_t magic = kMagic;
    uint64_t size = 0;  // including this header
    uint64_t seed = 0;
};

class Consistency {
public:
    std::string check(const std::string& dir) {
        visit(dir);
        for (const auto& [inode, names] : names_)
            if (links_[inode] != names)
                problems_ += fmt::format("inode with {} links has {} names\n", links_[inode], names);
        return problems_;
    }

private:
    void visit(const std::string& dir) {
        DIR* stream = ::opendir(dir.c_str());
        if (!stream) {
            problems_ += fmt::format("opendir of {}: {}\n", dir, errno_name(errno));
            return;
        }
        std::set<std::string> names;
        while (const dirent* entry = ::readdir(stream))
            if (!names.insert(entry->d_name).second) problems_ += fmt::format("{} is listed twice\n", entry->d_name);
        ::closedir(stream);
        names.erase(".");
        names.erase("..");
        nlink_t folders = 0;
        for (const auto& name : names) folders += look_at(dir + "/" + name);
        struct stat st{};
        if (::stat(dir.c_str(), &st) != 0 || st.st_nlink != folders + 2)
            problems_ += fmt::format("{} has {} links and {} folders\n", dir, st.st_nlink, folders);
    }
    // Whether the path is a folder.
    bool look_at(const std::string& path) {
        struct stat st{};
        if (::lstat(path.c_str(), &st) != 0) {
            problems_ += fmt::format("{} is listed, but: {}\n", path, errno_name(errno));
            return false;
        }
        if (S_ISDIR(st.st_mode)) {
            visit(path);
            return true;
        }
        ++names_[st.st_ino];
        links_[st.st_ino] = st.st_nlink;
        return false;
    }

    std::map<ino_t, nlink_t> names_, links_;
    std::string problems_;
};

}  // namespace

std::string complete_file(size_t size, uint64_t seed) {
    std::string bytes = pattern(std::max(size, sizeof(Header)), static_cast<unsigned>(seed));
    const Header header{.size = bytes.size(), .seed = seed};
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

std::string verify_complete(const std::string& bytes) {
    Header header;
    if (bytes.size() < sizeof header) return fmt::format("only {} bytes", bytes.size());
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != Header::kMagic) return "no header: " + in_quotes(bytes.substr(0, sizeof header));
    if (header.size != bytes.size()) return fmt::format("{} bytes instead of {}", bytes.size(), header.size);
    const auto wanted = complete_file(header.size, header.seed);
    for (size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] != bytes[i]) return fmt::format("the first wrong byte is at {:#x} of {:#x}", i, wanted.size());
    return "";
}

std::string check_consistency(const std::string& dir) {
    return Consistency().check(dir);
}

}  // namespace gshm::core::test

#include "fuse/iov_folder.h"

#include <algorithm>
#include <climits>
#include <dirent.h>
#include <fcntl.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"

namespace gshm::core::fuse {
namespace {

constexpr std::string_view kLinksName = "iovs";
constexpr std::string_view kShm = "/dev/shm/";
constexpr int64_t kNsPerS = 1'000'000'000;

bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool is_uuid(std::string_view text) {
    if (text.size() == 32) return std::ranges::all_of(text, is_hex);
    if (text.size() != 36) return false;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !is_hex(text[i])) return false;
    }
    return true;
}

// A UUID, and words after dots: the block size of memory, the attributes of a ring.
bool is_iov_name(std::string_view name) {
    constexpr size_t kMostBytes = 128;
    const size_t end = std::min(name.find('.'), name.size());
    if (name.size() > kMostBytes || !is_uuid(name.substr(0, end))) return false;
    auto is_word = [](char c) { return is_hex(c) || (c >= 'g' && c <= 'z') || c == '-' || c == '.'; };
    return std::ranges::all_of(name.substr(end), is_word);
}

// A file directly in /dev/shm. Any other target would make the folder a place for links that lead programs elsewhere.
bool is_shm_file(std::string_view target) {
    if (!target.starts_with(kShm)) return false;
    target.remove_prefix(kShm.size());
    return !target.empty() && target.size() <= limits::kNamePartBytes && target != "." && target != ".." &&
           target.find('/') == std::string_view::npos;
}

void set_times(fuse_attr& attr, int64_t ns) {
    attr.atime = attr.mtime = attr.ctime = static_cast<uint64_t>(ns / kNsPerS);
    attr.atimensec = attr.mtimensec = attr.ctimensec = static_cast<uint32_t>(ns % kNsPerS);
}

}  // namespace

// The kept form of a link is a symbolic link of the same name whose target is a line of text:
// number pid started uid gid made_ns request target
void IovFolder::load() {
    MutexLock lock(mutex_);
    auto folder = UniqueFd::adopt(open(kept_path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder) return;
    DIR* listing = fdopendir(dup(folder.get()));
    while (const dirent* entry = listing == nullptr ? nullptr : readdir(listing)) {
        char text[PATH_MAX];
        const ssize_t bytes = readlinkat(folder.get(), entry->d_name, text, sizeof text);
        if (bytes < 0) continue;
        std::istringstream line(std::string(text, static_cast<size_t>(bytes)));
        Link link;
        link.name = entry->d_name;
        uint64_t number = 0;
        line >> number >> link.pid >> link.started >> link.uid >> link.gid >> link.made_ns >> link.request;
        line.get();
        std::getline(line, link.target, '\0');
        if (!is_iov_name(link.name) || !is_shm_file(link.target) || has(number) || number <= (kLinks & ~kOwn)) {
            unlinkat(folder.get(), entry->d_name, 0);
            continue;
        }
        last_ = std::max(last_, number);
        add(number, std::move(link));
    }
    if (listing != nullptr) closedir(listing);
    kept_ = std::move(folder);
}

Status IovFolder::open_kept() {
    if (kept_) return {};
    if (mkdir(kept_path_.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("cannot make the folder of iovs");
    kept_ = UniqueFd::adopt(open(kept_path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!kept_) return fail_errno("cannot open the folder of iovs");
    return {};
}

fuse_attr IovFolder::folder_attr(uint64_t node) {
    fuse_attr attr = {};
    attr.ino = node;
    // As /tmp: any user makes links, and only the owner of a link, or root, removes it. The kernel checks that.
    attr.mode = S_IFDIR | (node == kLinks ? 01777 : 0755);
    attr.nlink = node == kLinks ? 2 : 3;
    attr.uid = geteuid();
    attr.gid = getegid();
    attr.blksize = 4096;
    set_times(attr, SystemClock().now_ns());
    return attr;
}

fuse_attr IovFolder::link_attr(uint64_t number, const Link& link) {
    fuse_attr attr = {};
    attr.ino = kOwn | number;
    attr.mode = S_IFLNK | 0777;
    attr.nlink = 1;
    attr.uid = link.uid;
    attr.gid = link.gid;
    attr.size = link.target.size();
    attr.blksize = 4096;
    set_times(attr, link.made_ns);
    return attr;
}

// The kernel caches nothing of it: a link ends with its process, without a notice.
fuse_entry_out IovFolder::to_entry(const fuse_attr& attr) {
    fuse_entry_out out = {};
    out.nodeid = attr.ino;
    out.attr = attr;
    return out;
}

fuse_entry_out IovFolder::entry() {
    return to_entry(folder_attr(kTop));
}

void IovFolder::handle(Call& call) {
    MutexLock lock(mutex_);
    const uint64_t node = call.node();
    const bool folder = node == kTop || node == kLinks;
    switch (call.header().opcode) {
        case FUSE_LOOKUP: return lookup(call);
        case FUSE_FORGET:
        case FUSE_INTERRUPT: return call.no_answer();
        case FUSE_GETATTR: {
            fuse_attr_out out = {};
            if (folder) out.attr = folder_attr(node);
            else if (auto link = find(node); link != links_.end()) out.attr = link_attr(link->first, link->second);
            else return call.fail(ESTALE);
            return call.reply(out);
        }
        case FUSE_READLINK: {
            auto link = folder ? links_.end() : find(node);
            if (link == links_.end()) return call.fail(folder ? EINVAL : ESTALE);
            return call.reply_text(link->second.target);
        }
        case FUSE_SYMLINK: return make(call);
        case FUSE_UNLINK: return remove(call);
        case FUSE_READDIR: return list(call, false);
        case FUSE_READDIRPLUS: return list(call, true);
        case FUSE_GETXATTR: return call.fail(ENODATA);
        case FUSE_LISTXATTR: {
            auto in = call.part<fuse_getxattr_in>();
            if (!in) return call.fail(EINVAL);
            if ((*in)->size == 0) return call.reply(fuse_getxattr_out{});
            return call.reply_bytes({});
        }
        case FUSE_SETATTR:
        case FUSE_SETXATTR:
        case FUSE_REMOVEXATTR:
        case FUSE_MKNOD:
        case FUSE_MKDIR:
        case FUSE_RMDIR:
        case FUSE_LINK:
        case FUSE_RENAME:
        case FUSE_RENAME2:
        case FUSE_CREATE:
        case FUSE_TMPFILE: return call.fail(Error{EPERM, "3fs-virt/iovs has symbolic links only"});
        case FUSE_OPEN: return call.fail(EINVAL);
        default: return call.fail(ENOSYS);
    }
}

void IovFolder::lookup(Call& call) {
    auto name = call.text();
    if (!name) return call.fail(EINVAL);
    const uint64_t node = call.node();
    if (node != kTop && node != kLinks) {
        // By the handle of a file.
        auto link = find(node);
        if (*name != "." || link == links_.end()) return call.fail(ENOENT);
        return call.reply(to_entry(link_attr(link->first, link->second)));
    }
    if (*name == ".") return call.reply(to_entry(folder_attr(node)));
    if (*name == ".." && node == kLinks) return call.reply(to_entry(folder_attr(kTop)));
    if (node == kTop) {
        if (*name != kLinksName) return call.fail(ENOENT);
        return call.reply(to_entry(folder_attr(kLinks)));
    }
    auto link = find(*name);
    if (link == links_.end()) return call.fail(ENOENT);
    call.reply(to_entry(link_attr(link->first, link->second)));
}

void IovFolder::make(Call& call) {
    auto name = call.text();
    auto target = call.text();
    if (!name || !target) return call.fail(EINVAL);
    if (call.node() != kLinks) return call.fail(EPERM);
    if (!is_iov_name(*name)) return call.fail(Error{EINVAL, "the name is not a UUID with the attributes of an iov"});
    if (!is_shm_file(*target)) return call.fail(Error{EINVAL, "the target is not a file directly in /dev/shm"});
    const fuse_in_header& by = call.header();
    const uint64_t request = by.unique & ~kResent;
    if (auto taken = find(*name); taken != links_.end()) {
        const Link& link = taken->second;
        // Made by an earlier daemon that could not answer.
        const bool again = (by.unique & kResent) != 0 && link.request == request && link.target == *target;
        if (!again) return call.fail(EEXIST);
        return call.reply(to_entry(link_attr(taken->first, link)));
    }
    if (auto room = check_room(by.uid); !room) return call.fail(room.error());
    if (auto opened = open_kept(); !opened) return call.fail(opened.error());
    const int64_t now = SystemClock().now_ns();
    const uint64_t number = std::max(last_ + 1, static_cast<uint64_t>(now) & (kOwn / 2 - 1));
    // The kernel names the thread, which waits for this answer.
    const auto thread = static_cast<pid_t>(by.pid);
    const pid_t process = process_of_thread(thread);
    const pid_t pid = process == 0 ? thread : process;
    Link link{std::string(*name), std::string(*target), now, by.uid, by.gid, pid, process_started(pid), request};
    const std::string line = fmt::format("{} {} {} {} {} {} {} {}", number, link.pid, link.started, link.uid, link.gid,
                                         link.made_ns, link.request, link.target);
    if (symlinkat(line.c_str(), kept_.get(), link.name.c_str()) != 0) return call.fail(fail_errno("symlink").error());
    last_ = number;
    auto made = add(number, std::move(link));
    call.reply(to_entry(link_attr(made->first, made->second)));
}

void IovFolder::remove(Call& call) {
    auto name = call.text();
    if (!name) return call.fail(EINVAL);
    if (call.node() != kLinks) return call.fail(EPERM);
    auto link = find(*name);
    if (link == links_.end()) {
        // Removed by an earlier daemon that could not answer.
        if ((call.header().unique & kResent) != 0) return call.succeed();
        return call.fail(ENOENT);
    }
    drop(link);
    call.succeed();
}

void IovFolder::list(Call& call, bool with_attributes) {
    auto in = call.part<fuse_read_in>();
    if (!in) return call.fail(EINVAL);
    const uint64_t node = call.node();
    if (node != kTop && node != kLinks) return call.fail(ENOTDIR);
    EntryBuffer buffer(call.scratch().first(std::min<size_t>((*in)->size, call.scratch().size())), with_attributes);
    // Without attributes, also where there is room for them: the kernel would count a lookup that is not needed.
    const fuse_entry_out unknown = {};
    const uint64_t offset = (*in)->offset;
    if (add_dots(buffer, offset, node, node == kTop ? kRoot : kTop)) {
        if (node == kTop) {
            if (offset <= kDots) buffer.add(kLinksName, kLinks, kDots + 1, DT_DIR, unknown);
        } else {
            list_links(buffer, listed_position(offset));
        }
    }
    call.reply_bytes(buffer.bytes());
}

// In steps, so that a page that ends in the middle of the links is not empty: the kernel takes that for the end.
void IovFolder::list_links(EntryBuffer& buffer, uint64_t position) {
    const fuse_entry_out unknown = {};
    while (buffer.bytes().size() <= 2 * FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + 2)) {
        const auto numbers = below(position, kAtOnce);
        if (numbers.empty()) return;
        position = numbers.back();
        drop_of_ended(numbers);
        for (uint64_t number : numbers) {
            auto found = links_.find(number);
            if (found == links_.end()) continue;
            if (!buffer.add(found->second.name, kOwn | number, number + kDots, DT_LNK, unknown)) return;
        }
    }
}

IovFolder::Links::iterator IovFolder::find(uint64_t node) {
    auto found = links_.find(node & ~kOwn);
    if (found == links_.end() || process_lives(found->second.pid, found->second.started)) return found;
    drop(found);
    return links_.end();
}

IovFolder::Links::iterator IovFolder::find(std::string_view name) {
    auto found = by_name_.find(name);
    return found == by_name_.end() ? links_.end() : find(kOwn | found->second);
}

IovFolder::Links::iterator IovFolder::add(uint64_t number, Link link) {
    by_name_.emplace(link.name, number);
    of_user_[link.uid].insert(number);
    return links_.emplace(number, std::move(link)).first;
}

void IovFolder::drop(Links::iterator link) {
    if (kept_) unlinkat(kept_.get(), link->second.name.c_str(), 0);
    by_name_.erase(link->second.name);
    auto owner = of_user_.find(link->second.uid);
    owner->second.erase(link->first);
    if (owner->second.empty()) of_user_.erase(owner);
    links_.erase(link);
}

void IovFolder::drop_of_ended(const std::vector<uint64_t>& numbers) {
    std::map<std::pair<pid_t, uint64_t>, bool> lives;
    for (uint64_t number : numbers) {
        auto found = links_.find(number);
        const std::pair process{found->second.pid, found->second.started};
        auto [known, is_new] = lives.try_emplace(process, true);
        if (is_new) known->second = process_lives(process.first, process.second);
        if (!known->second) drop(found);
    }
}

std::vector<uint64_t> IovFolder::below(uint64_t position, size_t most) const {
    std::vector<uint64_t> numbers;
    for (auto at = links_.lower_bound(position); at != links_.begin() && numbers.size() < most;) {
        --at;
        numbers.push_back(at->first);
    }
    return numbers;
}

Status IovFolder::check_room(uid_t uid) {
    auto has_room = [&]() REQUIRES(mutex_) {
        auto own = of_user_.find(uid);
        return (own == of_user_.end() || own->second.size() < limits::kIovLinksOfUser) &&
               (uid == 0 || links_.size() < limits::kIovLinks);
    };
    if (has_room()) return {};
    if (auto own = of_user_.find(uid); own != of_user_.end()) {
        drop_of_ended(std::vector<uint64_t>(own->second.begin(), own->second.end()));
    }
    // Of other users only some, since each process must be looked up.
    if (!has_room()) {
        const auto some = below(swept_, kAtOnce);
        swept_ = some.size() < kAtOnce ? UINT64_MAX : some.back();
        drop_of_ended(some);
    }
    if (has_room()) return {};
    return fail(ENOSPC, "3fs-virt/iovs is full: a user has at most {} links in it, all users {}",
                limits::kIovLinksOfUser, limits::kIovLinks);
}

}  // namespace gshm::core::fuse

// Requests of the kernel, in any order and by several users, while sessions hold objects and the daemon is restarted: each
// is answered once, and a restart changes nothing that can be seen.
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/xattr.h>
#include <sys/stat.h>

#include "base/log.h"
#include "fuzz/input.h"
#include "fuzz/kernel_machine.h"
#include "store/acl.h"

namespace gshm::core::fuzz {
namespace {

class Run {
public:
    explicit Run(Input input) : input_(input), machine_((input_.byte() & 1) != 0) {}

    void run() {
        for (int i = 0; i < 200 && !input_.at_end(); ++i) act();
    }

private:
    FuzzDaemon& daemon() { return *machine_.daemon; }
    uint32_t user() {
        static constexpr uint32_t kUsers[] = {0, 1000, 1001};
        return kUsers[input_.below(3)];
    }
    NodeId node() {
        return input_.below(8) == 7 ? input_.size() : nodes_[input_.below(static_cast<uint32_t>(nodes_.size()))];
    }
    FileId file() {
        return files_.empty() || input_.below(16) == 15 ? input_.size()
                                                        : files_[input_.below(static_cast<uint32_t>(files_.size()))];
    }
    std::string name() {
        static const char* const kNames[] = {"a", "b", "c", "dir", "x", "long", ".", "..", ""};
        const uint32_t which = input_.below(12);
        if (which == 5) return std::string(255, 'l');
        if (which < std::size(kNames)) return kNames[which];
        auto text = input_.text(20);
        // The kernel sends texts without NUL and slashes; the raw requests have any.
        std::erase_if(text, [](char byte) { return byte == '\0' || byte == '/'; });
        return text;
    }
    std::string attribute() {
        static const char* const kNames[] = {"user.a",
                                             "user.b",
                                             "user.device",
                                             "user.state",
                                             "user.id",
                                             "user.",
                                             "security.x",
                                             "user.allocation_size",
                                             "user.fabric_handle",
                                             XATTR_NAME_POSIX_ACL_ACCESS,
                                             XATTR_NAME_POSIX_ACL_DEFAULT};
        return kNames[input_.below(std::size(kNames))];
    }

    // Mostly of valid entries.
    std::string acl_bytes() {
        static constexpr AclTag kTags[] = {AclTag::owner, AclTag::user, AclTag::owning_group,
                                           AclTag::group, AclTag::mask, AclTag::other};
        AclEntries entries;
        for (AclTag tag : kTags) {
            if (input_.below(16) == 0) continue;
            entries.push_back({tag, static_cast<uint16_t>(input_.below(8)), 0});
            const bool has_id = tag == AclTag::user || tag == AclTag::group;
            if (has_id) entries.back().id = input_.below(4);
        }
        std::string bytes = encode_acl(entries);
        if (input_.below(16) == 0 && !bytes.empty()) bytes[input_.below(static_cast<uint32_t>(bytes.size()))] ^= 1;
        return bytes;
    }

    void act();
    void ask(uint32_t opcode, NodeId node, std::string_view body);
    void learn(uint32_t opcode, const Answer& answer);
    void act_as_session();
    bool may_wait(NodeId id, const std::string& attribute);
    std::string seen();

    Input input_;
    Machine machine_;
    std::vector<NodeId> nodes_ = {Files::kRoot};
    std::vector<FileId> files_;
    std::vector<SessionId> sessions_;
    static constexpr int kMostRestarts = 8;
    int restarts_ = 0;
    uint64_t next_unique_ = 2;
    std::string last_;  // request
};

class Body {
public:
    template <typename Part>
    Body& add(const Part& part) {
        bytes_.append(reinterpret_cast<const char*>(&part), sizeof part);
        return *this;
    }
    Body& text(const std::string& text) {
        bytes_.append(text).push_back('\0');
        return *this;
    }
    Body& bytes(size_t count) {
        bytes_.append(count, 'b');
        return *this;
    }
    Body& append(const std::string& bytes) {
        bytes_ += bytes;
        return *this;
    }
    operator std::string_view() const { return bytes_; }

private:
    std::string bytes_;
};

void Run::ask(uint32_t opcode, NodeId node, std::string_view body) {
    fuse_in_header header = {};
    header.len = static_cast<uint32_t>(sizeof header + body.size());
    header.opcode = opcode;
    header.unique = next_unique_;
    next_unique_ += 2;
    header.nodeid = node;
    header.uid = header.gid = user();
    header.pid = 1;
    last_.assign(reinterpret_cast<const char*>(&header), sizeof header);
    last_.append(body);
    learn(opcode, daemon().handle(last_));
}

void Run::learn(uint32_t opcode, const Answer& answer) {
    const bool silent = opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
    require(answer.count == (silent ? 0 : 1), "a request is answered once");
    if (answer.error != 0) return;
    size_t at = 0;
    const bool makes = opcode == FUSE_LOOKUP || opcode == FUSE_MKDIR || opcode == FUSE_MKNOD ||
                       opcode == FUSE_SYMLINK || opcode == FUSE_LINK || opcode == FUSE_CREATE || opcode == FUSE_TMPFILE;
    if (makes && answer.body.size() >= sizeof(fuse_entry_out)) {
        fuse_entry_out entry = {};
        memcpy(&entry, answer.body.data(), sizeof entry);
        if (nodes_.size() < 200) nodes_.push_back(entry.nodeid);
        at = sizeof entry;
    }
    const bool opens = opcode == FUSE_OPEN || opcode == FUSE_CREATE || opcode == FUSE_TMPFILE;
    if (opens && answer.body.size() >= at + sizeof(fuse::OpenOut)) {
        fuse::OpenOut out = {};
        memcpy(&out, answer.body.data() + at, sizeof out);
        files_.push_back(out.file);
    }
}

// These wait a while for files to be closed, which nobody does here.
bool Run::may_wait(NodeId id, const std::string& attribute) {
    StoreLock lock(daemon().store_mutex());
    Node* node = daemon().files().find(id);
    auto* object = node == nullptr ? nullptr : as_object(node);
    if (object == nullptr) return false;
    return attribute == "user.state" ? object->write_leases > 0 : attribute == "user.device" && object->leases > 0;
}

void Run::act_as_session() {
    Store& store = daemon().store;
    if (sessions_.empty() || input_.below(8) == 0) {
        const uint32_t id = user();
        sessions_.push_back(store.begin_session({id, id, 2, {}}));
        (void)store.keep_session(sessions_.back(), 1, {{input_.byte(), 2}});
    }
    const SessionId session = sessions_[input_.below(static_cast<uint32_t>(sessions_.size()))];
    const Access access = input_.below(2) == 0 ? Access::read : Access::write;
    switch (input_.below(6)) {
        case 0: {
            const auto path = name();
            CreateSpec spec{path,   1 + input_.size() % (2 << 20), input_.below(2), 0666, input_.below(2), nullptr,
                            nullptr};
            for (int i = 0; i < 3; ++i) {
                auto made = store.create(session, spec);
                const auto* need = made ? std::get_if<ExtentNeed>(&*made) : nullptr;
                if (need == nullptr) break;
                auto memory = daemon().allocate(*need);
                if (!memory) break;
                auto* extent = store.extents().add(*need, std::move(*memory));
                if (!need->slab) spec.extent = extent;
            }
            break;
        }
        case 1: (void)store.open_id(session, node(), access, false); break;
        case 2: (void)store.release(session, node(), access); break;
        case 3: (void)store.seal(session, name()); break;
        case 4: {
            const auto from = name();
            const auto to = name();
            (void)store.rename(session, from, to, input_.below(2) != 0);
            break;
        }
        default: {
            store.end_session(session);
            std::erase(sessions_, session);
        }
    }
}

// All names, and what is known of what they lead to. (Times are not: those of files are the kernel's.)
std::string Run::seen() {
    std::string text;
    StoreLock lock(daemon().store_mutex());
    std::vector<std::pair<std::string, const Node*>> left = {{"", daemon().files().find(Files::kRoot)}};
    while (!left.empty()) {
        const auto [path, node] = left.back();
        left.pop_back();
        auto* mutable_node = const_cast<Node*>(node);
        if (node->acl) text += node->acl->digest() + " ";
        const auto* holder = node->kind == NodeKind::directory ? static_cast<const Directory*>(node) : nullptr;
        if (holder != nullptr && holder->default_acl) text += "default " + holder->default_acl->digest() + " ";
        text += fmt::format("{} {} {} {:o} {} {} {}", path, node->id, static_cast<int>(node->kind), node->mode,
                            node->uid, node->gid, node->links);
        if (node->attributes) {
            for (const auto& [key, value] : *node->attributes) text += fmt::format(" {}={}", key, value);
        }
        if (auto* object = as_object(mutable_node)) {
            daemon().files().refresh(*object);
            text += fmt::format(" {} {} {} {} {} {}", object->size_bytes, static_cast<int>(object->state),
                                object->flags, object->device, object->leases, object->write_leases);
        } else if (auto* directory = as_directory(mutable_node)) {
            text += fmt::format(" {} {}", directory->device.value_or(9), directory->subdirectories);
            uint64_t end = 0;
            for (const Link* link : directory->order.after(0, SIZE_MAX, &end))
                left.push_back({path + "/" + link->name, link->node});
        }
        text += '\n';
    }
    return text;
}

void Run::act() {
    const uint8_t action = input_.byte() % 44;
    // First, and not among arguments, whose order compilers choose: an input means the same to all of them.
    const NodeId id = action < 39 ? node() : 0;
    switch (action) {
        case 0: return ask(FUSE_LOOKUP, id, Body().text(name()));
        case 1: return ask(FUSE_FORGET, id, Body().add(fuse_forget_in{input_.size()}));
        case 2: {
            Body body;
            const uint32_t count = input_.below(5);
            body.add(fuse_batch_forget_in{count + (input_.below(16) == 0 ? 1000 : 0), 0});
            for (uint32_t i = 0; i < count; ++i) body.add(fuse_forget_one{node(), input_.size()});
            return ask(FUSE_BATCH_FORGET, 0, body);
        }
        case 3: return ask(FUSE_GETATTR, id, Body().add(fuse_getattr_in{}));
        case 4:
        case 5: {
            fuse_setattr_in in = {};
            in.valid = static_cast<uint32_t>(input_.number(2));
            in.fh = (in.valid & FATTR_FH) != 0 ? file() : 0;
            in.size = input_.size();
            in.mode = static_cast<uint32_t>(input_.number(2));
            in.uid = user();
            in.gid = user();
            in.atime = input_.size();
            in.mtime = input_.size();
            return ask(FUSE_SETATTR, id, Body().add(in));
        }
        case 6: return ask(FUSE_STATFS, id, {});
        case 7: return ask(FUSE_READLINK, id, {});
        case 8: return ask(FUSE_SYMLINK, id, Body().text(name()).text(input_.text(30)));
        case 9: {
            fuse_mknod_in in = {};
            static constexpr uint32_t kTypes[] = {S_IFREG, S_IFIFO, S_IFCHR, S_IFSOCK, S_IFDIR, 0};
            in.mode = kTypes[input_.below(6)] | static_cast<uint32_t>(input_.number(2) & 07777);
            in.rdev = input_.byte();
            return ask(FUSE_MKNOD, id, Body().add(in).text(name()));
        }
        case 10:
        case 11:
            return ask(FUSE_MKDIR, id,
                       Body().add(fuse_mkdir_in{static_cast<uint32_t>(input_.number(2)), 0}).text(name()));
        case 12: return ask(FUSE_UNLINK, id, Body().text(name()));
        case 13: return ask(FUSE_RMDIR, id, Body().text(name()));
        case 14: return ask(FUSE_RENAME, id, Body().add(fuse_rename_in{node()}).text(name()).text(name()));
        case 15: {
            fuse_rename2_in in = {};
            in.newdir = node();
            in.flags = input_.below(8);
            return ask(FUSE_RENAME2, id, Body().add(in).text(name()).text(name()));
        }
        case 16: return ask(FUSE_LINK, id, Body().add(fuse_link_in{node()}).text(name()));
        case 17:
        case 18: {
            fuse_read_in in = {};
            in.offset = input_.size();
            in.size = static_cast<uint32_t>(input_.size());
            return ask(action == 17 ? FUSE_READDIR : FUSE_READDIRPLUS, id, Body().add(in));
        }
        case 19:
        case 20: {
            const auto key = attribute();
            static const char* const kValues[] = {"sealed", "open", "host", "memory", ""};
            const uint32_t which = input_.below(8);
            auto value = which < 5 ? std::string(kValues[which]) : std::string(input_.text(40));
            if (key.starts_with("system.") && which < 7) value = acl_bytes();
            if (may_wait(id, key)) return;
            const uint32_t said =
                input_.below(32) == 0 ? static_cast<uint32_t>(input_.size()) : static_cast<uint32_t>(value.size());
            const uint32_t head[4] = {said, input_.below(4), input_.below(2), 0};
            return ask(FUSE_SETXATTR, id, Body().add(head).text(key).append(value));
        }
        case 21: {
            fuse_getxattr_in in = {};
            in.size = static_cast<uint32_t>(input_.size());
            return ask(FUSE_GETXATTR, id, Body().add(in).text(attribute()));
        }
        case 22: {
            fuse_getxattr_in in = {};
            in.size = static_cast<uint32_t>(input_.size());
            return ask(FUSE_LISTXATTR, id, Body().add(in));
        }
        case 23: return ask(FUSE_REMOVEXATTR, id, Body().text(attribute()));
        case 24:
        case 25: {
            fuse_open_in in = {};
            static constexpr uint32_t kFlags[] = {
                O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_TRUNC, O_WRONLY | O_APPEND, O_RDWR | O_EXCL};
            in.flags = kFlags[input_.below(6)];
            return ask(FUSE_OPEN, id, Body().add(in));
        }
        case 26:
        case 27: {
            fuse_create_in in = {};
            in.flags = O_CREAT | (input_.below(2) == 0 ? O_RDWR : O_WRONLY) | (input_.below(3) == 0 ? O_EXCL : 0) |
                       (input_.below(4) == 0 ? O_TRUNC : 0);
            in.mode = static_cast<uint32_t>(input_.number(2));
            return ask(FUSE_CREATE, id, Body().add(in).text(name()));
        }
        case 28: {
            fuse_create_in in = {};
            in.flags = O_TMPFILE | O_RDWR;
            in.mode = S_IFREG | 0600;
            return ask(FUSE_TMPFILE, id, Body().add(in).text(name()));
        }
        case 29: {
            fuse_release_in in = {};
            in.fh = file();
            std::erase(files_, in.fh);
            return ask(FUSE_RELEASE, id, Body().add(in));
        }
        case 30:
        case 31: {
            fuse_read_in in = {};
            in.fh = file();
            in.offset = input_.size();
            in.size = static_cast<uint32_t>(input_.size());
            return ask(FUSE_READ, id, Body().add(in));
        }
        case 32:
        case 33:
        case 34: {
            fuse_write_in in = {};
            in.fh = file();
            in.offset = input_.size();
            const uint64_t bytes = input_.size() % (70 << 10);
            in.size = static_cast<uint32_t>(bytes + (input_.below(32) == 0 ? 1 : 0));
            in.write_flags = input_.below(8);
            return ask(FUSE_WRITE, id, Body().add(in).bytes(bytes));
        }
        case 35: {
            fuse_fallocate_in in = {};
            in.fh = file();
            in.offset = input_.size();
            in.length = input_.size();
            in.mode = input_.byte();
            return ask(FUSE_FALLOCATE, id, Body().add(in));
        }
        case 36: {
            fuse_lseek_in in = {};
            in.fh = file();
            in.offset = input_.size();
            in.whence = input_.below(6);
            return ask(FUSE_LSEEK, id, Body().add(in));
        }
        case 37: {
            fuse_copy_file_range_in in = {};
            in.fh_in = file();
            in.off_in = input_.size();
            in.nodeid_out = node();
            in.fh_out = file();
            in.off_out = input_.size();
            in.len = input_.size();
            return ask(FUSE_COPY_FILE_RANGE, id, Body().add(in));
        }
        case 38: {  // anything at all behind a header
            const uint32_t opcode = input_.below(55);
            if (opcode == FUSE_INIT || opcode == FUSE_SETXATTR) return;
            return ask(opcode, id, input_.text(200));
        }
        case 39: return act_as_session();
        case 40: {
            if (restarts_++ == kMostRestarts) input_.take_all();  // each writes and reads a catalog
            const auto before = seen();
            machine_.restart();
            std::erase_if(sessions_, [&](SessionId id) { return !daemon().store.has_session(id); });
            const auto after = seen();
            if (before != after) std::fprintf(stderr, "before:\n%s\nafter:\n%s\n", before.c_str(), after.c_str());
            require(before == after, "a restart changes nothing that can be seen");
            return;
        }
        case 41: {  // the kernel asks again
            if (last_.empty()) return;
            auto again = last_;
            auto* header = reinterpret_cast<fuse_in_header*>(again.data());
            if (header->opcode == FUSE_SETXATTR) return;
            header->unique |= fuse::kResent;
            return learn(header->opcode, daemon().handle(again));
        }
        default: {  // what the kernel says that it knows nothing of
            if (machine_.kernel.surveys.empty()) return;
            auto [nodes, on_unknown] = std::move(machine_.kernel.surveys.back());
            machine_.kernel.surveys.pop_back();
            const uint8_t unknown = input_.byte();
            size_t index = 0;
            std::erase_if(nodes, [&](NodeId) { return (unknown >> (index++ % 8) & 1) == 0; });
            on_unknown(nodes);
        }
    }
}

}  // namespace
}  // namespace gshm::core::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    gshm::core::log_to_file("/dev/null");
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    gshm::core::fuzz::Run(gshm::core::fuzz::Input(data, size)).run();
    return 0;
}

// The table of operations and their expected effects: before " | " the changes in the kernel's view, after it the
// events of a watch.
#include <algorithm>
#include <fcntl.h>
#include <set>
#include <sys/xattr.h>
#include <unistd.h>

#include "mount/operations_scene.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kOther = MountFixture::kNobody;
constexpr size_t kNameBytes = 250;
constexpr size_t kValueBytes = 64 << 10;

int code_of(const auto& result) {
    return result ? 0 : result.error().code;
}
int code_of_call(int result) {
    return result >= 0 ? 0 : errno;
}

// ---- operations by each interface; names are relative to the scene ----

using Ways = std::map<Column, Operation>;

Ways create(const std::string& name) {
    return {{Column::library,
             [=](Scene& scene, std::string&) {
                 return code_of(scene.client().create(
                     {.name = scene.full(name), .size_bytes = 100, .mode = 0644, .keep = true, .map = false}));
             }},
            {Column::mount,
             [=](Scene& scene, std::string&) {
                 const int fd = open(scene.path(name).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
                 const int code = code_of_call(fd);
                 if (fd >= 0) close(fd);
                 return code;
             }},
            {Column::command, [=](Scene& scene, std::string&) {
                 return scene.run({"create", scene.full(name), "--size", "100", "--mode", "0644"});
             }}};
}

Ways write(const std::string& name) {
    return {{Column::library,
             [=](Scene& scene, std::string&) {
                 auto object = scene.client().open(scene.full(name), {.write = true, .map = false});
                 return object ? code_of(object->copy_in(std::string("other"))) : object.error().code;
             }},
            {Column::mount,
             [=](Scene& scene, std::string&) {
                 const int fd = open(scene.path(name).c_str(), O_WRONLY | O_CLOEXEC);
                 if (fd < 0) return errno;
                 const int code = code_of_call(static_cast<int>(::write(fd, "other", 5)));
                 close(fd);
                 return code;
             }},
            {Column::command,
             [=](Scene& scene, std::string&) { return scene.run({"write", scene.full(name)}, nullptr, "other"); }}};
}

Ways seal(const std::string& name) {
    return {
        {Column::library, [=](Scene& scene, std::string&) { return code_of(scene.client().seal(scene.full(name))); }},
        {Column::mount,
         [=](Scene& scene, std::string&) {
             return MountFixture::set_attribute(scene.path(name), "user.state", "sealed");
         }},
        {Column::command, [=](Scene& scene, std::string&) { return scene.run({"seal", scene.full(name)}); }}};
}

Ways unlink(const std::string& name) {
    return {
        {Column::library, [=](Scene& scene, std::string&) { return code_of(scene.client().unlink(scene.full(name))); }},
        {Column::mount, [=](Scene& scene, std::string&) { return code_of_call(::unlink(scene.path(name).c_str())); }},
        {Column::command, [=](Scene& scene, std::string&) { return scene.run({"rm", scene.full(name)}); }}};
}

Ways remove_directory(const std::string& name) {
    auto ways = unlink(name);
    ways.erase(Column::command);  // `rm` of a directory is `rm -r`
    ways[Column::mount] = [=](Scene& scene, std::string&) { return code_of_call(rmdir(scene.path(name).c_str())); };
    return ways;
}

Ways rename(const std::string& from, const std::string& to, bool replace) {
    return {{Column::library,
             [=](Scene& scene, std::string&) {
                 return code_of(scene.client().rename(scene.full(from), scene.full(to), replace));
             }},
            {Column::mount,
             [=](Scene& scene, std::string&) {
                 return code_of_call(renameat2(AT_FDCWD, scene.path(from).c_str(), AT_FDCWD, scene.path(to).c_str(),
                                               replace ? 0 : RENAME_NOREPLACE));
             }},
            {Column::command, [=](Scene& scene, std::string&) {
                 std::vector<std::string> args = {"mv", scene.full(from), scene.full(to)};
                 if (!replace) args.insert(args.begin() + 1, "-n");
                 return scene.run(args);
             }}};
}
// `gshm mv` moves the object into an existing directory of that name.
Ways rename_without_command(const std::string& from, const std::string& to) {
    auto ways = rename(from, to, true);
    ways.erase(Column::command);
    return ways;
}

Ways exchange(const std::string& a, const std::string& b) {
    return {{Column::mount, [=](Scene& scene, std::string&) {
                 return code_of_call(
                     renameat2(AT_FDCWD, scene.path(a).c_str(), AT_FDCWD, scene.path(b).c_str(), RENAME_EXCHANGE));
             }}};
}

Ways link(const std::string& name, const std::string& to) {
    return {
        {Column::library,
         [=](Scene& scene, std::string&) { return code_of(scene.client().link(scene.full(name), scene.full(to))); }},
        {Column::mount, [=](Scene& scene, std::string&) {
             return code_of_call(::link(scene.path(name).c_str(), scene.path(to).c_str()));
         }}};
}

Ways make_directory(const std::string& name) {
    return {
        {Column::library,
         [=](Scene& scene, std::string&) { return code_of(scene.client().make_directory(scene.full(name), 0755)); }},
        {Column::mount, [=](Scene& scene, std::string&) {
             umask(0);
             return code_of_call(mkdir(scene.path(name).c_str(), 0755));
         }}};
}

Ways make_symlink(const std::string& target, const std::string& name) {
    return {
        {Column::library,
         [=](Scene& scene, std::string&) { return code_of(scene.client().make_symlink(target, scene.full(name))); }},
        {Column::mount,
         [=](Scene& scene, std::string&) { return code_of_call(symlink(target.c_str(), scene.path(name).c_str())); }}};
}

Ways read_link(const std::string& name) {
    return {{Column::library,
             [=](Scene& scene, std::string& ret_said) {
                 auto target = scene.client().read_link(scene.full(name));
                 if (target) ret_said = *target;
                 return code_of(target);
             }},
            {Column::mount, [=](Scene& scene, std::string& ret_said) {
                 char target[100];
                 const ssize_t length = readlink(scene.path(name).c_str(), target, sizeof target);
                 if (length >= 0) ret_said.assign(target, static_cast<size_t>(length));
                 return length >= 0 ? 0 : errno;
             }}};
}

Ways change(const std::string& name, uint32_t what, uint32_t mode, uid_t uid) {
    return {{Column::library,
             [=](Scene& scene, std::string&) {
                 const gshm_changes changes = {sizeof changes, what, mode, uid, uid};
                 return -gshm_change(scene.client().get(), scene.full(name).c_str(), &changes);
             }},
            {Column::mount, [=](Scene& scene, std::string&) {
                 const auto path = scene.path(name);
                 return code_of_call(what == GSHM_CHANGE_MODE ? chmod(path.c_str(), mode)
                                                              : chown(path.c_str(), uid, uid));
             }}};
}

Ways set_attribute(const std::string& name, const std::string& key, const std::string& value) {
    return {{Column::library,
             [=](Scene& scene, std::string&) {
                 return code_of(scene.client().set_attribute(scene.full(name), key, value));
             }},
            {Column::mount,
             [=](Scene& scene, std::string&) {
                 return MountFixture::set_attribute(scene.path(name), "user." + key, value);
             }},
            {Column::command,
             [=](Scene& scene, std::string&) { return scene.run({"attr", scene.full(name), key, value}); }}};
}

Ways get_attribute(const std::string& name, const std::string& key) {
    return {{Column::library,
             [=](Scene& scene, std::string& ret_said) {
                 auto value = scene.client().attribute(scene.full(name), key);
                 if (value) ret_said = *value;
                 return code_of(value);
             }},
            {Column::mount,
             [=](Scene& scene, std::string& ret_said) {
                 ret_said = MountFixture::attribute(scene.path(name), "user." + key);
                 return errno;
             }},
            {Column::command, [=](Scene& scene, std::string& ret_said) {
                 std::string out;
                 const int code = scene.run({"attr", scene.full(name), key}, &out);
                 const size_t at = out.find("\"text\":");
                 if (at != out.npos) ret_said = out.substr(out.find('"', at + 7) + 1);
                 ret_said = ret_said.substr(0, ret_said.find('"'));
                 return code;
             }}};
}

Ways list_attributes(const std::string& name) {
    auto join = [](const std::set<std::string>& names) {
        std::string text;
        for (const auto& each : names) text += (text.empty() ? "" : " ") + each;
        return text;
    };
    return {{Column::library,
             [=](Scene& scene, std::string& ret_said) {
                 auto names = scene.client().attribute_names(scene.full(name));
                 if (names) ret_said = join({names->begin(), names->end()});
                 return code_of(names);
             }},
            {Column::mount, [=](Scene& scene, std::string& ret_said) {
                 std::string packed(64 << 10, '\0');
                 const ssize_t length = listxattr(scene.path(name).c_str(), packed.data(), packed.size());
                 if (length < 0) return errno;
                 std::set<std::string> names;
                 for (const char* at = packed.data(); at < packed.data() + length; at += strlen(at) + 1)
                     names.insert(at + 5);
                 ret_said = join(names);
                 return 0;
             }}};
}

Ways remove_attribute(const std::string& name, const std::string& key) {
    return {
        {Column::library,
         [=](Scene& scene, std::string&) { return code_of(scene.client().remove_attribute(scene.full(name), key)); }},
        {Column::mount,
         [=](Scene& scene, std::string&) {
             return code_of_call(removexattr(scene.path(name).c_str(), ("user." + key).c_str()));
         }},
        {Column::command,
         [=](Scene& scene, std::string&) { return scene.run({"attr", "-d", scene.full(name), key}); }}};
}

Ways resize(const std::string& name, off_t size) {
    return {{Column::mount,
             [=](Scene& scene, std::string&) { return code_of_call(truncate(scene.path(name).c_str(), size)); }}};
}

Ways set_times(const std::string& name) {
    return {{Column::mount, [=](Scene& scene, std::string&) {
                 const timespec times[] = {{5000, 0}, {4000, 0}};
                 return code_of_call(utimensat(AT_FDCWD, scene.path(name).c_str(), times, 0));
             }}};
}

// ---- preparations ----

void file(Scene& scene) {
    scene.make_file("o");
}
void two_files(Scene& scene) {
    scene.make_file("o");
    scene.make_file("p");
}
void sealed_file(Scene& scene) {
    scene.make_file("o");
    EXPECT_EQ(MountFixture::set_attribute(scene.path("o"), "user.state", "sealed"), 0);
}
void attributed_file(Scene& scene) {
    scene.make_file("o");
    for (const char* key : {"k", "second"}) {
        EXPECT_EQ(MountFixture::set_attribute(scene.path("o"), std::string("user.") + key, "value"), 0);
    }
}
void full_of_attributes(Scene& scene) {
    scene.make_file("o");
    const std::string largest(kValueBytes, 'v');
    for (int i = 0; i < 15; ++i) {
        EXPECT_EQ(MountFixture::set_attribute(scene.path("o"), "user." + std::to_string(i), largest), 0);
    }
}
void directories(Scene& scene) {
    for (const char* name : {"d", "empty", "full"}) EXPECT_EQ(mkdir(scene.path(name).c_str(), 0755), 0);
    scene.make_file("full/x");
    scene.make_file("o");
}
void private_folder(Scene& scene) {
    scene.make_file("o", 0600);
    EXPECT_EQ(chmod(scene.path("").c_str(), 0755), 0);
}
void sticky_folder(Scene& scene) {
    scene.make_file("o");
    EXPECT_EQ(chmod(scene.path("").c_str(), 01777), 0);
}
void symbolic_link(Scene& scene) {
    scene.make_file("o");
    EXPECT_EQ(symlink("o", scene.path("l").c_str()), 0);
}
void pipe_file(Scene& scene) {
    EXPECT_EQ(mkfifo(scene.path("pipe").c_str(), 0666), 0);
}
void set_id_file(Scene& scene) {
    scene.make_file("o", 06755);
}
void group_folder(Scene& scene) {
    EXPECT_EQ(chown(scene.path("").c_str(), 0, 77), 0);
    EXPECT_EQ(chmod(scene.path("").c_str(), 02777), 0);
}
void open_file(Scene& scene) {
    scene.make_file("o");
    scene.keep_open("o", O_WRONLY);
}

void add(std::vector<Row>& rows, std::vector<Row> more) {
    for (Row& row : more) rows.push_back(std::move(row));
}

// ---- the rows ----

std::vector<Row> rows_of_objects() {
    const std::string too_long(256, 'n');
    std::vector<Row> rows;
    add(rows, {
                  {"create", nullptr, 0, create("n"), ".: mtime ctime; new n file 644 | created n"},
                  {"create, taken", file, 0, create("o"), "EEXIST"},
                  {"create, no directory",
                   nullptr,
                   0,
                   create("d/n"),
                   ".: links mtime ctime; new d directory 755; new d/n file 644 | created d; created d/n",
                   {{Column::mount, {"ENOENT", "the library makes directories on the way to an object"}}}},
                  {"create, below a file", file, 0, create("o/n"), "ENOTDIR"},
                  {"create, not permitted", private_folder, kOther, create("n"), "EACCES"},
                  {"create, long name", nullptr, 0, create(too_long), "ENAMETOOLONG"},
                  {"create in a directory that gives its group", group_folder, 0, create("n"),
                   ".: mtime ctime; new n file 644 group 77 | created n"},
                  {"write", file, 0, write("o"), "o: mtime ctime"},
                  {"write, sealed", sealed_file, 0, write("o"), "EPERM"},
                  {"write, not permitted", file, kOther, write("o"), "EACCES"},
                  {"write, missing", nullptr, 0, write("o"), "ENOENT"},
                  {"write to a directory", directories, 0, write("d"), "EISDIR"},
                  {"seal", file, 0, seal("o"), "o: ctime | sealed o"},
                  {"seal, sealed", sealed_file, 0, seal("o"), ""},
                  {"seal, missing", nullptr, 0, seal("o"), "ENOENT"},
                  {"seal a directory", directories, 0, seal("d"), "EISDIR"},
                  {"seal, not permitted", file, kOther, seal("o"), "EACCES"},
                  {"seal, open for writing", open_file, 0, seal("o"), "EBUSY"},
                  {"size", file, 0, resize("o", 100), "o: size mtime ctime"},
                  {"size, sealed", sealed_file, 0, resize("o", 100), "EPERM"},
                  {"size, not permitted", file, kOther, resize("o", 100), "EACCES"},
                  {"size of a directory", directories, 0, resize("d", 100), "EISDIR"},
                  {"size, too large", file, 0, resize("o", off_t{1} << 62), "EFBIG"},
                  {"times", file, 0, set_times("o"), "o: atime mtime ctime"},
                  {"times, not permitted", file, kOther, set_times("o"), "EPERM"},
              });
    return rows;
}

std::vector<Row> rows_of_names() {
    const std::string too_long(256, 'n');
    const Exception by_one_call{"EISDIR",
                                "gshm_unlink() is not rmdir(2): it removes a directory only where nothing is lost"};
    const Exception moves_into{".: mtime ctime; d: mtime ctime; d/o was o: ctime | renamed d/o from o",
                               "`mv` moves into a directory"};
    std::vector<Row> rows;
    add(rows,
        {
            {"unlink", file, 0, unlink("o"), ".: mtime ctime; gone o | deleted o"},
            {"unlink, missing", nullptr, 0, unlink("o"), "ENOENT"},
            {"unlink, not permitted", private_folder, kOther, unlink("o"), "EACCES"},
            {"unlink, sticky", sticky_folder, kOther, unlink("o"), "EPERM"},
            {"unlink, below a file", file, 0, unlink("o/n"), "ENOTDIR"},
            {"unlink a directory with entries", directories, 0, unlink("full"), "EISDIR"},
            {"unlink a symbolic link", symbolic_link, 0, unlink("l"), ".: mtime ctime; gone l | deleted l"},
            {"remove a directory", directories, 0, remove_directory("d"), ".: links mtime ctime; gone d | deleted d"},
            {"remove a directory with entries",
             directories,
             0,
             remove_directory("full"),
             "ENOTEMPTY",
             {{Column::library, by_one_call}}},
            {"remove a directory, missing", nullptr, 0, remove_directory("d"), "ENOENT"},
            {"rename", file, 0, rename("o", "n", true), ".: mtime ctime; n was o: ctime | renamed n from o"},
            {"rename into a directory", directories, 0, rename("o", "d/n", true),
             ".: mtime ctime; d: mtime ctime; d/n was o: ctime | renamed d/n from o"},
            {"rename over", two_files, 0, rename("o", "p", true), ".: mtime ctime; p was o: ctime | replaced p from o"},
            {"rename over, not to", two_files, 0, rename("o", "p", false), "EEXIST"},
            {"rename to its own name", file, 0, rename("o", "o", true), ""},
            {"rename to its own name, not to replace", file, 0, rename("o", "o", false), "EEXIST"},
            {"rename, missing", nullptr, 0, rename("o", "n", true), "ENOENT"},
            {"rename, not permitted", private_folder, kOther, rename("o", "n", true), "EACCES"},
            {"rename, sticky", sticky_folder, kOther, rename("o", "n", true), "EPERM"},
            {"rename, long name", file, 0, rename("o", too_long, true), "ENAMETOOLONG"},
            {"rename a directory", directories, 0, rename("full", "n", true),
             ".: mtime ctime; n was full: ctime; n/x was full/x: | renamed n from full; renamed n/x from full/x"},
            {"rename over an empty directory", directories, 0, rename_without_command("full", "empty"),
             ".: links mtime ctime; empty was full: ctime; empty/x was full/x: | replaced empty from full; renamed "
             "empty/x from full/x"},
            {"rename over a directory with entries", directories, 0, rename_without_command("d", "full"), "ENOTEMPTY"},
            {"rename an object over a directory",
             directories,
             0,
             rename("o", "d", true),
             "EISDIR",
             {{Column::command, moves_into}}},
            {"rename a directory over an object", directories, 0, rename("d", "o", true), "ENOTDIR"},
            {"rename into itself", directories, 0, rename("d", "d/n", true), "EINVAL"},
            {"exchange", two_files, 0, exchange("o", "p"),
             ".: mtime ctime; o was p: ctime; p was o: ctime | replaced p; replaced o"},
            {"exchange, missing", file, 0, exchange("o", "p"), "ENOENT"},
            {"link", file, 0, link("o", "n"), ".: mtime ctime; n is o; o: links ctime | created n"},
            {"link, taken", two_files, 0, link("o", "p"), "EEXIST"},
            {"link, missing", nullptr, 0, link("o", "n"), "ENOENT"},
            {"link a directory", directories, 0, link("d", "n"), "EPERM"},
            {"link, long name", file, 0, link("o", too_long), "ENAMETOOLONG"},
            {"make a directory", nullptr, 0, make_directory("n"),
             ".: links mtime ctime; new n directory 755 | created n"},
            {"make a directory, taken", file, 0, make_directory("o"), "EEXIST"},
            {"make a directory, not permitted", private_folder, kOther, make_directory("n"), "EACCES"},
            {"make a directory in one that gives its group", group_folder, 0, make_directory("n"),
             ".: links mtime ctime; new n directory 2755 group 77 | created n"},
            {"make a symbolic link", nullptr, 0, make_symlink("x", "n"),
             ".: mtime ctime; new n symlink 777 | created n"},
            {"make a symbolic link, taken", file, 0, make_symlink("x", "o"), "EEXIST"},
            {"make a symbolic link, not permitted", private_folder, kOther, make_symlink("x", "n"), "EACCES"},
            {"read a symbolic link",
             symbolic_link,
             0,
             read_link("l"),
             "o",
             {{Column::mount, {"o; l: atime", "reading by the library leaves the access time alone"}}}},
            {"read a symbolic link that is none", file, 0, read_link("o"), "EINVAL"},
            {"read a symbolic link, missing", nullptr, 0, read_link("l"), "ENOENT"},
        });
    return rows;
}

std::vector<Row> rows_of_rights() {
    return {
        {"mode", file, 0, change("o", GSHM_CHANGE_MODE, 0600, 0), "o: mode ctime"},
        {"mode of a directory", directories, 0, change("d", GSHM_CHANGE_MODE, 0700, 0), "d: mode ctime"},
        {"mode, sealed", sealed_file, 0, change("o", GSHM_CHANGE_MODE, 0600, 0), "o: mode ctime"},
        {"mode, not permitted", file, kOther, change("o", GSHM_CHANGE_MODE, 0600, 0), "EPERM"},
        {"mode, missing", nullptr, 0, change("o", GSHM_CHANGE_MODE, 0600, 0), "ENOENT"},
        {"owner", file, 0, change("o", GSHM_CHANGE_OWNER, 0, 7), "o: uid gid ctime"},
        {"owner, with set-id bits", set_id_file, 0, change("o", GSHM_CHANGE_OWNER, 0, 7), "o: mode uid gid ctime"},
        {"owner, not permitted", file, kOther, change("o", GSHM_CHANGE_OWNER, 0, kOther), "EPERM"},
    };
}

std::vector<Row> rows_of_attributes() {
    const std::string longest(kNameBytes, 'k'), largest(kValueBytes, 'v');
    return {
        {"set an attribute", file, 0, set_attribute("o", "k", "value"), "o: ctime"},
        {"set an attribute again", attributed_file, 0, set_attribute("o", "k", "other"), "o: ctime"},
        {"set an attribute of a directory", directories, 0, set_attribute("d", "k", "value"), "d: ctime"},
        {"set an attribute, sealed", sealed_file, 0, set_attribute("o", "k", "value"), "o: ctime"},
        {"set an attribute through a symbolic link",
         symbolic_link,
         0,
         set_attribute("l", "k", "value"),
         "o: ctime",
         {{Column::mount, {"l: atime; o: ctime", "reading by the library leaves the access time alone"}}}},
        {"set an attribute, longest name", file, 0, set_attribute("o", longest, "value"), "o: ctime"},
        {"set an attribute, long name", file, 0, set_attribute("o", longest + "k", "value"), "ERANGE"},
        {"set an attribute, largest value", file, 0, set_attribute("o", "k", largest), "o: ctime"},
        {"set an attribute, large value", file, 0, set_attribute("o", "k", largest + "v"), "E2BIG"},
        {"set an attribute, no room", full_of_attributes, 0, set_attribute("o", "k", largest), "ENOSPC"},
        {"set an attribute, room for that", full_of_attributes, 0, set_attribute("o", "k", largest.substr(100)),
         "o: ctime"},
        {"set an attribute, no name", file, 0, set_attribute("o", "", "value"), "EINVAL"},
        {"set an attribute, missing", nullptr, 0, set_attribute("o", "k", "value"), "ENOENT"},
        {"set an attribute, not permitted", file, kOther, set_attribute("o", "k", "value"), "EACCES"},
        {"set an attribute of another's sticky directory", sticky_folder, kOther, set_attribute("", "k", "value"),
         "EPERM"},
        {"set an attribute of a pipe", pipe_file, 0, set_attribute("pipe", "k", "value"), "EPERM"},
        {"get an attribute", attributed_file, 0, get_attribute("o", "k"), "value"},
        {"get an attribute, none", file, 0, get_attribute("o", "k"), "ENODATA"},
        {"get an attribute, missing", nullptr, 0, get_attribute("o", "k"), "ENOENT"},
        {"get an attribute, not permitted", private_folder, kOther, get_attribute("o", "k"), "EACCES"},
        {"get an attribute of a pipe", pipe_file, 0, get_attribute("pipe", "k"), "ENODATA"},
        {"list attributes", attributed_file, 0, list_attributes("o"), "k second"},
        {"list attributes of a pipe", pipe_file, 0, list_attributes("pipe"), ""},
        {"list attributes, missing", nullptr, 0, list_attributes("o"), "ENOENT"},
        {"remove an attribute", attributed_file, 0, remove_attribute("o", "k"), "o: ctime"},
        {"remove an attribute, none", file, 0, remove_attribute("o", "k"), "ENODATA"},
        {"remove an attribute, not permitted", attributed_file, kOther, remove_attribute("o", "k"), "EACCES"},
        {"remove an attribute, missing", nullptr, 0, remove_attribute("o", "k"), "ENOENT"},
    };
}

}  // namespace

std::vector<Row> operation_rows() {
    std::vector<Row> rows;
    for (auto part : {rows_of_objects, rows_of_names, rows_of_rights, rows_of_attributes}) add(rows, part());
    return rows;
}

}  // namespace gshm::core::test

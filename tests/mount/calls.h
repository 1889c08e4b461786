// System calls below one directory, each recorded with its arguments and its result.
//
//   Calls c(recorder, dir);
//   const int fd = c.open("f", O_CREAT | O_RDWR, 0644);   // open(f, O_RDWR|O_CREAT, 0644) = ok
//   c.mkdir("f", 0755);                                   // mkdir(f, 0755) = EEXIST
//   c.stat("f");                                          // f: file 0644 nlink=1 size=0 uid=0 gid=0
//
// Names are relative to the directory. Descriptors appear in the log under the name they were opened by. Every method
// returns the result of the call and preserves its errno.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "mount/recorder.h"

namespace gshm::core::test {

struct User {
    uid_t uid;
    gid_t gid;
    std::vector<gid_t> groups = {};  // besides gid
};
inline const User kNobody{65534, 65534};
inline const User kSomebody{12345, 12345};

class Calls {
public:
    Calls(Recorder& recorder, std::string dir) : recorder_(recorder), dir_(std::move(dir)) {}

    Recorder& log() { return recorder_; }
    const std::string& dir() const { return dir_; }
    std::string at(const std::string& name) const { return dir_ + "/" + name; }

    // ---- names ----
    int open(const std::string& name, int flags, mode_t mode = 0);
    int openat(int dir_fd, const std::string& name, int flags, mode_t mode = 0);
    int creat(const std::string& name, mode_t mode);
    int mkdir(const std::string& name, mode_t mode);
    int rmdir(const std::string& name);
    int unlink(const std::string& name);
    int link(const std::string& from, const std::string& to);
    int symlink(const std::string& target, const std::string& name);  // the target is not relative to the directory
    int readlink(const std::string& name, size_t size = 8192);
    int rename(const std::string& from, const std::string& to);
    int renameat2(const std::string& from, const std::string& to, unsigned flags);
    int mknod(const std::string& name, mode_t mode, dev_t device = 0);
    int truncate(const std::string& name, off_t size);
    int chmod(const std::string& name, mode_t mode);
    int chown(const std::string& name, uid_t uid, gid_t gid);   // follows symlinks
    int lchown(const std::string& name, uid_t uid, gid_t gid);  // does not
    int access(const std::string& name, int mode);
    int stat(const std::string& name);         // lstat, recorded in full
    int stat_target(const std::string& name);  // stat: follows symlinks
    // Records the names of a directory, sorted, with their types.
    void list(const std::string& name);
    // Records whether two names have the same inode.
    void same_inode(const std::string& a, const std::string& b);
    // Makes a file with these bytes; recorded only if it fails.
    void make(const std::string& name, std::string_view bytes = {}, mode_t mode = 0644);
    void content(const std::string& name);  // recorded as bytes

    // ---- descriptors ----
    void close(int fd);                    // recorded only if it fails; ignores -1
    int adopt(int fd, std::string label);  // names a descriptor that was opened otherwise
    int dup(int fd);
    ssize_t write(int fd, std::string_view bytes);
    ssize_t pwrite(int fd, std::string_view bytes, off_t offset);
    ssize_t read(int fd, size_t size);  // the bytes are recorded
    ssize_t pread(int fd, size_t size, off_t offset);
    off_t seek(int fd, off_t offset, int whence);
    int ftruncate(int fd, off_t size);
    int fallocate(int fd, int mode, off_t offset, off_t size);
    int fchmod(int fd, mode_t mode);
    int fchown(int fd, uid_t uid, gid_t gid);
    int fstat(int fd);
    // nullptr if it fails. Mappings last until the end of the scenario's process unless the scenario unmaps them.
    char* map(int fd, size_t size, int protection, int flags, off_t offset = 0);

    // ---- extended attributes; those of the scenario are named user.test.* ----
    int set_attribute(const std::string& name, const std::string& attribute, std::string_view value, int flags = 0);
    ssize_t attribute(const std::string& name, const std::string& attribute, size_t size = 70000);
    // Records only those of the scenario, sorted: a file system may have further ones.
    void list_attributes(const std::string& name);
    int remove_attribute(const std::string& name, const std::string& attribute);

    // ---- times ----
    // Runs the action and records which times of these names it changed: "times after chmod: f{ctime} .{}". File times
    // have the resolution of a jiffy, so it waits for the next one first.
    void moved(const std::string& what, std::initializer_list<std::string> names, const std::function<void()>& action);

    // ---- processes ----
    // Runs the action as another user, in a child process. Needs root. Its records are marked with the uid.
    void as(const User& user, const std::function<void()>& action);
    // Runs the action in a child process and records its exit: "WHAT: exit 0", "WHAT: SIGBUS".
    void in_child(const std::string& what, const std::function<int()>& action);

private:
    std::string name_of(int fd) const;
    int opened(int fd, const std::string& name, const std::string& what);

    Recorder& recorder_;
    std::string dir_;
    std::map<int, std::string> names_;
};

// Waits until the file times of the kernel have advanced.
void pause_for_clock();

}  // namespace gshm::core::test

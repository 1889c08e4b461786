// System calls below one directory, each recorded with its arguments and its result.
//
//   Calls c(recorder, dir);
//   const int fd = c.open("f", O_CREAT | O_RDWR, 0644);   // open(f, O_RDWR|O_CREAT, 0644) = ok
//   c.mkdir("f", 0755);                                   // mkdir(f, 0755) = EEXIST
//   c.stat("f");                                          // f: file 0644 nlink=1 size=0 uid=0 gid=0
//
// Names are relative to the directory; descriptors appear in the log under the name they were opened by. Every method
// returns what the call returned and leaves its errno.
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
    int symlink(const std::string& target, const std::string& name);  // the target is taken as it is
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
    // The names of a directory, sorted, with their types.
    void list(const std::string& name);
    // Whether two names are one inode.
    void same_inode(const std::string& a, const std::string& b);
    // A file with these bytes; recorded only if it fails.
    void make(const std::string& name, std::string_view bytes = {}, mode_t mode = 0644);
    void content(const std::string& name);  // recorded as bytes

    // ---- descriptors ----
    void close(int fd);                    // recorded only if it fails; nothing to do for -1
    int adopt(int fd, std::string label);  // the name of a descriptor that came from elsewhere
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

    // ---- extended attributes; the scenario's own are called user.test.* ----
    int set_attribute(const std::string& name, const std::string& attribute, std::string_view value, int flags = 0);
    ssize_t attribute(const std::string& name, const std::string& attribute, size_t size = 70000);
    // Only the scenario's own, sorted: a file system may have others beside them.
    void list_attributes(const std::string& name);
    int remove_attribute(const std::string& name, const std::string& attribute);

    // ---- times ----
    // Does something and records which times of these names it moved: "times after chmod: f{ctime} .{}". Clocks are
    // coarse (a jiffy), so it lets one go by before and never compares more than before with after.
    void moved(const std::string& what, std::initializer_list<std::string> names, const std::function<void()>& action);

    // ---- processes ----
    // As another user, in a child; for root only. Its records are marked with its uid.
    void as(const User& user, const std::function<void()>& action);
    // In a child, with its exit: "WHAT: exit 0", "WHAT: SIGBUS".
    void in_child(const std::string& what, const std::function<int()>& action);

private:
    std::string name_of(int fd) const;
    int opened(int fd, const std::string& name, const std::string& what);

    Recorder& recorder_;
    std::string dir_;
    std::map<int, std::string> names_;
};

// Until clocks have visibly moved on.
void pause_for_clock();

}  // namespace gshm::core::test

// Files that are an interface of the kernel, such as those of procfs and sysfs.
#pragma once

namespace gshm::core::io {

// Whether reading or writing the file calls a function of the kernel, instead of moving stored bytes. Such a function
// may check the process that calls it by ids that are not those for files (the effective user for /proc/sys), or may act
// on that process (a 0 written to cgroup.procs). Only the process that has opened the file may use it.
bool is_kernel_interface(int fd);

}  // namespace gshm::core::io

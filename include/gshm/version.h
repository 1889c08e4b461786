/* The version: the only place in the tree that has it. CMake, libgshm, the programs and the packages read it here. */
#ifndef GSHM_VERSION_H
#define GSHM_VERSION_H

#define GSHM_VERSION_MAJOR 0
#define GSHM_VERSION_MINOR 2
#define GSHM_VERSION_PATCH 0

#define GSHM_VERSION_QUOTED_(number) #number
#define GSHM_VERSION_JOINED_(major, minor, patch) \
    GSHM_VERSION_QUOTED_(major) "." GSHM_VERSION_QUOTED_(minor) "." GSHM_VERSION_QUOTED_(patch)
/* "major.minor.patch", of the header. gshm_version() is that of the library. */
#define GSHM_VERSION GSHM_VERSION_JOINED_(GSHM_VERSION_MAJOR, GSHM_VERSION_MINOR, GSHM_VERSION_PATCH)

#endif

/* Where programs of 3FS look for it. */
#ifndef GSHM_COMPAT_LIB_API_HF3FS_USRBIO_H
#define GSHM_COMPAT_LIB_API_HF3FS_USRBIO_H

#include <hf3fs_usrbio.h>

#endif

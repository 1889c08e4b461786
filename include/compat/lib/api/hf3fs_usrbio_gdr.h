/* Where programs of 3FS look for it. */
#ifndef GSHM_COMPAT_LIB_API_HF3FS_USRBIO_GDR_H
#define GSHM_COMPAT_LIB_API_HF3FS_USRBIO_GDR_H

#include <hf3fs_usrbio_gdr.h>

#endif

// Where programs of vineyard look for it.
#ifndef GSHM_COMPAT_VINEYARD_COMMON_UTIL_LOGGING_H
#define GSHM_COMPAT_VINEYARD_COMMON_UTIL_LOGGING_H

#include <vineyard.h>

#endif

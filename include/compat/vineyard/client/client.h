// Where programs of vineyard look for it.
#ifndef GSHM_COMPAT_VINEYARD_CLIENT_CLIENT_H
#define GSHM_COMPAT_VINEYARD_CLIENT_CLIENT_H

#include <vineyard.h>

#endif

// The type and the vtable of OutOfMemoryError are in the libraries that throw it.
#include "faketorch.h"

extern "C" void faketorch_throw() {
    throw c10::OutOfMemoryError({"malloc", "faketorch", 0}, "full");
}

// Completions of gshmd for shells, from the table of its options. Those of gshm ask gshm itself (packaging/completions).
#pragma once

#include "manual/pages.h"

namespace gshm::manual {

// gshmd.bash, _gshmd (zsh) and gshmd.fish.
void add_daemon_completions(Pages& files);

}  // namespace gshm::manual

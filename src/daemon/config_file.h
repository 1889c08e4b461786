// gshm.toml: the options of gshmd in a file.
#pragma once

#include <string>

#include "daemon/option_table.h"

namespace gshm::core {

// $GSHM_CONFIG; else /etc/gshm/gshm.toml for root, and gshm/gshm.toml in $XDG_CONFIG_HOME or ~/.config for others.
// "": there is none.
std::string default_config_file();

// ENOENT: there is no such file, or its folder is closed to gshmd (as another user's HOME is). EPERM: it cannot be read,
// or another user could have written it. EBADMSG: it is wrong; the message begins
// with file, line and column.
Result<Settings> read_config_file(const std::string& path);
// The same for the text of a file.
Result<Settings> parse_config(std::string_view text, const std::string& path);

}  // namespace gshm::core

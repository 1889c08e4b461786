// The configuration of gshmd: the command line over gshm.toml over the options that an earlier gshmd has kept over the
// defaults. Owned by one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/option_table.h"

namespace gshm::core {

struct OptionChange {
    const Option* option = nullptr;
    std::string key;
    std::string former;  // as of value_text()
    std::string value;
    bool needs_restart = false;
};

class Configuration {
public:
    // Reads the file. EBADMSG, EPERM, ENOENT: as of read_config_file(). EINVAL: the options do not go together. ENODEV: a
    // device is none. If none is named, the file of an earlier gshmd at the runtime folder is read (kept_config()).
    static Result<Configuration> create(Settings command_line);

    const Options& options() const { return options_; }
    // The file that was read; "": none.
    const std::string& file() const { return file_; }
    // For keep_config(): the file that was named by the command line, the environment or an earlier gshmd.
    std::string kept_file() const;

    // Takes over the options of the command line of an earlier gshmd: `setting` returns what keep() has given it.
    // Ignores what this gshmd does not understand.
    void recall(const std::function<std::string(std::string_view name)>& setting);
    // The values to keep for a next gshmd, under their names: those of the command line, this one or an earlier one. Not
    // those of the file, which the next gshmd reads itself.
    std::vector<std::pair<std::string, std::string>> kept() const;

    // The same command line and kept options with the file as it is now. Errors as of create().
    Result<Configuration> read_again() const;
    // The options that differ in `next`, by the rows of the table. A change that needs a restart stays one until then.
    std::vector<OptionChange> changes(const Configuration& next) const;
    // Takes those values of `next` that need no restart, and returns the rows to be applied, each once.
    std::vector<const Option*> take(const Configuration& next);

    // All keys with their values and where they come from; itself a gshm.toml.
    std::string text() const;

private:
    Configuration() = default;
    void find_file();
    Status recall_file();
    Status read_file();
    Status merge();
    Status check() const;

    Settings command_line_;
    Settings file_settings_;
    Settings kept_;
    Settings merged_;
    std::string file_;
    // Absolute from the start on, since gshmd changes its working directory; "": none.
    std::string path_;
    bool is_named_ = false;  // it must exist
    std::string dir_;        // the runtime folder whose gshmd has named the file: the file does not change it
    Options options_;
};

}  // namespace gshm::core

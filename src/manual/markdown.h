// The parts of the documentation that manual pages take over. The files are parsed by cmark-gfm.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "manual/page.h"

struct cmark_node;

namespace gshm::manual {

class Markdown {
public:
    // Throws std::runtime_error if the file cannot be read.
    explicit Markdown(const std::filesystem::path& file);

    // The whole text below the first heading: headings become sections, the first row of a table names its cells.
    void add_all(Page& page) const;
    // What the text says of a command of gshm: rows of tables that begin with `command ...`, and sections that have
    // `gshm command` in their heading. False: nothing.
    bool add_command(Page& page, std::string_view command) const;

    // The section of this heading. Throws std::runtime_error if there is none.
    void add_section(Page& page, std::string_view title) const;

private:
    struct Free {
        void operator()(cmark_node* node) const;
    };
    std::unique_ptr<cmark_node, Free> root_;
};

}  // namespace gshm::manual

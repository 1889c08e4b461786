// The C interface, read from its header: groups of declarations with their comments.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gshm::manual {

struct Declaration {
    std::string code;                    // as in the header
    std::string comment;                 // the one above it; "": none
    std::vector<std::string> functions;  // names that it declares
};

struct Group {
    std::string title;    // "Objects by name"
    std::string remark;   // the rest of the title: "docs/limits.md; everything in this part is since 0.2"
    std::string comment;  // before the first declaration
    std::vector<Declaration> declarations;

    std::vector<std::string> functions() const;
};

struct Header {
    std::string comment;        // at the top: what holds for all calls
    std::vector<Group> groups;  // the first one has no title: what precedes the titles

    // Throws std::runtime_error if the file cannot be read, or has a form that this cannot read.
    static Header read(const std::filesystem::path& file);
};

}  // namespace gshm::manual

// What may follow on a command line, for the completions of shells (packaging/completions).
#pragma once

#include <string>
#include <vector>

namespace gshm::cli {

struct Candidate {
    std::string text;  // the whole word; a directory ends in a slash
    std::string description;
};

// What is added to the candidates by the shell itself.
enum class Paths { none, files, folders };

struct Completion {
    Paths paths = Paths::none;
    std::vector<Candidate> candidates;
};

// `words`: those after the program's name, without quotes; the last one is to be completed. Throws nothing: without a
// gshmd there are no names.
Completion complete(const std::vector<std::string>& words);

// gshm --complete SHELL ARGUMENT...: prints "files", "folders" or "none", then text and description of each candidate,
// each followed by a NUL. Ends after half a second at the latest. Arguments:
//   bash LINE BREAKS   the line up to the cursor, and $COMP_WORDBREAKS. The texts are in the form that readline inserts
//   words WORD...      the words after the program's name, without quotes
// Returns the exit code.
int print_completion(int argc, const char* const* argv);

}  // namespace gshm::cli

// The command line of bash: words with their quotes removed, and texts in the form that readline inserts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gshm::cli {

struct BashLine {
    std::vector<std::string> words;  // without quotes; the last one ends at the cursor
    // Of the last word: readline replaces its text from here on, and so needs no more than the rest of a candidate.
    size_t replaced_from = 0;
    char open_quote = 0;         // '\'', '"', or '$' for $'...': the cursor is in quotes, whose first one stays
    bool is_redirected = false;  // the last word is the file of < or >
    // The shell may change the last word: a tilde, or a variable.
    bool is_expanded = false;

    // `breaks` is $COMP_WORDBREAKS. Substitutions stay as they are typed: nothing is run.
    static BashLine parse(std::string_view line, std::string_view breaks);

    // What readline is to insert for a candidate that begins with the last word.
    std::string inserted(std::string_view candidate) const;
};

}  // namespace gshm::cli

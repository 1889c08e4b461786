// Aligned columns for people.
#pragma once

#include <string>
#include <vector>

namespace gshm::cli {

class Table {
public:
    // A title that begins with '>' makes its column right-aligned: numbers.
    explicit Table(const std::vector<std::string>& titles);
    // As many cells as there are titles. Control characters are shown, not obeyed.
    void add_row(std::vector<std::string> cells);
    // Every line with its newline; no blanks at the ends of lines.
    std::string text() const;

private:
    std::vector<bool> right_aligned_;
    std::vector<std::vector<std::string>> rows_;
};

// "key: value" lines with the values in one column.
std::string key_value_text(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace gshm::cli

// Aligned columns of text.
#pragma once

#include <string>
#include <vector>

namespace gshm::cli {

class Table {
public:
    // A title that begins with '>' right-aligns its column, for numbers.
    explicit Table(const std::vector<std::string>& titles);
    // One cell for each title. Control characters are escaped.
    void add_row(std::vector<std::string> cells);
    // Each line ends in a newline and has no trailing blanks.
    std::string text() const;

private:
    std::vector<bool> right_aligned_;
    std::vector<std::vector<std::string>> rows_;
};

// "key: value" lines with the values in one column.
std::string key_value_text(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace gshm::cli

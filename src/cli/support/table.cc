#include "cli/support/table.h"

#include <algorithm>

#include "cli/support/text.h"

namespace gshm::cli {

Table::Table(const std::vector<std::string>& titles) {
    std::vector<std::string> header;
    for (const auto& title : titles) {
        right_aligned_.push_back(title.starts_with('>'));
        header.push_back(right_aligned_.back() ? title.substr(1) : title);
    }
    rows_.push_back(std::move(header));
}

void Table::add_row(std::vector<std::string> cells) {
    for (auto& cell : cells) cell = printable(cell);
    rows_.push_back(std::move(cells));
}

std::string Table::text() const {
    std::vector<size_t> widths(right_aligned_.size());
    for (const auto& row : rows_)
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
    std::string text;
    for (const auto& row : rows_) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string blanks(widths[i] - width_of(row[i]), ' ');
            if (i > 0) line += "  ";
            line += right_aligned_[i] ? blanks + row[i] : row[i] + blanks;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

std::string key_value_text(const std::vector<std::pair<std::string, std::string>>& pairs) {
    size_t width = 0;
    for (const auto& [key, value] : pairs) width = std::max(width, width_of(printable(key)));
    std::string text;
    for (const auto& [key, value] : pairs) {
        text += printable(key) + ':';
        if (!value.empty()) text += std::string(width - width_of(printable(key)) + 1, ' ') + printable(value);
        text += '\n';
    }
    return text;
}

}  // namespace gshm::cli

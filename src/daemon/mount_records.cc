#include "daemon/mount_records.h"

#include <sstream>

#include <fmt/core.h>

namespace gshm::core {
namespace {

std::string escaped(std::string_view text) {
    std::string out;
    for (char c : text) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\\')
            out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
        else out += c;
    }
    return out;
}

std::string unescaped(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 3 >= text.size()) {
            out += text[i];
            continue;
        }
        out += static_cast<char>((text[i + 1] - '0') << 6 | (text[i + 2] - '0') << 3 | (text[i + 3] - '0'));
        i += 3;
    }
    return out;
}

}  // namespace

std::string mounts_text(const std::vector<MountRecord>& records) {
    std::string text;
    for (const auto& [path, options] : records) {
        text += fmt::format("{} {} /{} {}\n", escaped(options.source), escaped(path), escaped(options.subdirectory),
                            options.read_only ? "ro" : "rw");
    }
    return text;
}

std::vector<MountRecord> parse_mounts(std::string_view text) {
    std::vector<MountRecord> records;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string source;
        std::string path;
        std::string subdirectory;
        std::string options;
        if (!(words >> source >> path >> subdirectory >> options) || !subdirectory.starts_with('/')) continue;
        records.push_back({unescaped(path),
                           {.read_only = options == "ro",
                            .subdirectory = unescaped(subdirectory.substr(1)),
                            .source = unescaped(source)}});
    }
    return records;
}

std::vector<MountRecord> records_of(const std::vector<fuse::MountPoint>& points) {
    std::vector<MountRecord> records;
    for (const auto& point : points) records.push_back({point.path(), point.options()});
    return records;
}

}  // namespace gshm::core

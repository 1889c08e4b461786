#include "cli/doctor/machine.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

namespace gshm::cli {
namespace {

template <typename Number>
std::optional<Number> number_in(std::string_view text, int base = 10) {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

Machine Machine::from_environment() {
    const char* root = std::getenv("GSHM_DOCTOR_ROOT");
    return Machine(root ? root : "");
}

bool Machine::exists(std::string_view path) const {
    return ::access(at(path).c_str(), F_OK) == 0;
}

std::optional<std::string> Machine::read(std::string_view path) const {
    std::ifstream file(at(path), std::ios::binary);
    if (!file) return std::nullopt;
    std::string text(std::istreambuf_iterator<char>(file), {});
    if (file.bad()) return std::nullopt;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
}

std::optional<int64_t> Machine::read_number(std::string_view path) const {
    const auto text = read(path);
    return text ? number_in<int64_t>(*text) : std::nullopt;
}

std::vector<std::string> Machine::list(std::string_view path) const {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(at(path), error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
        names.push_back(entry->path().filename().string());
    std::ranges::sort(names);
    return names;
}

std::string Machine::resolve(std::string_view path) const {
    std::error_code error;
    const auto real = std::filesystem::canonical(at(path), error).string();
    if (error) return {};
    const auto root = root_.empty() ? std::string() : std::filesystem::canonical(root_, error).string();
    return real.starts_with(root) ? real.substr(root.size()) : std::string();
}

std::string Machine::kernel() const {
    return read("/proc/sys/kernel/osrelease").value_or("");
}

bool Machine::kernel_at_least(int major, int minor) const {
    int has_major = 0, has_minor = 0;
    if (std::sscanf(kernel().c_str(), "%d.%d", &has_major, &has_minor) < 2) return false;
    return std::pair(has_major, has_minor) >= std::pair(major, minor);
}

std::optional<Machine::Limit> Machine::limit(std::string_view process, std::string_view row) const {
    const auto value = [](const std::string& word) {
        return word == "unlimited" ? UINT64_MAX : number_in<uint64_t>(word).value_or(0);
    };
    for (const auto& line : lines_of(read("/proc/" + std::string(process) + "/limits").value_or(""))) {
        if (!line.starts_with(row)) continue;
        const auto words = words_of(line.substr(row.size()));
        if (words.size() >= 2) return Limit{value(words[0]), value(words[1])};
    }
    return std::nullopt;
}

bool Machine::has_capability(std::string_view process, int capability) const {
    constexpr std::string_view kRow = "CapEff:";
    for (const auto& line : lines_of(read("/proc/" + std::string(process) + "/status").value_or(""))) {
        if (!line.starts_with(kRow)) continue;
        const auto words = words_of(line.substr(kRow.size()));
        return !words.empty() && (number_in<uint64_t>(words[0], 16).value_or(0) >> capability & 1) != 0;
    }
    return false;
}

std::optional<int> Machine::device_major(std::string_view driver) const {
    for (const auto& line : lines_of(read("/proc/devices").value_or(""))) {
        const auto words = words_of(line);
        if (words.size() == 2 && words[1] == driver) return number_in<int>(words[0]);
    }
    return std::nullopt;
}

bool Machine::module_loaded(std::string_view name) const {
    for (const auto& line : lines_of(read("/proc/modules").value_or("")))
        if (line.starts_with(std::string(name) + ' ')) return true;
    return false;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
    return lines;
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace gshm::cli

// fakecuda, a test double of NVIDIA's driver: parses and counts the rules for injected failures.
#include "faults.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "config.h"

namespace fakecuda {
namespace {

struct Rule {
    Symbol symbol = Symbol::count;
    int device = -1;      // any
    unsigned long n = 0;  // every call
    CUresult code = kSuccess;
    unsigned long seen = 0;
};

bool parse_number(const std::string& text, unsigned long& value) {
    char* end = nullptr;
    value = strtoul(text.c_str(), &end, 10);
    return !text.empty() && *end == '\0';
}

bool parse_rule(const std::string& text, Rule& rule) {
    size_t first = text.find(':');
    size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    if (second == std::string::npos) return false;
    std::string symbol = text.substr(0, first);
    std::string n = text.substr(first + 1, second - first - 1);
    unsigned long number = 0;
    if (size_t at = symbol.find('@'); at != std::string::npos) {
        if (!parse_number(symbol.substr(at + 1), number) || number >= kMaxDevices) return false;
        rule.device = static_cast<int>(number);
        symbol.resize(at);
    }
    rule.symbol = find_symbol(symbol.c_str());
    if (rule.symbol == Symbol::count) return false;
    if (n != "*" && (!parse_number(n, rule.n) || rule.n == 0)) return false;
    if (!parse_number(text.substr(second + 1), number) || number == 0) return false;
    rule.code = static_cast<CUresult>(number);
    return true;
}

// Returns the first text that is no rule, or nothing.
std::string parse_rules(std::string text, std::vector<Rule>& rules) {
    for (char& c : text) {
        if (c == ',') c = ' ';
    }
    std::istringstream words(text);
    std::string word;
    std::string bad;
    while (words >> word) {
        Rule rule;
        if (parse_rule(word, rule)) rules.push_back(rule);
        else if (bad.empty()) bad = word;
    }
    return bad;
}

// The last known state of the control file.
struct Control {
    timespec changed = {};
    off_t size = -1;
    ino_t inode = 0;
    std::vector<Rule> rules;

    void refresh() {
        const std::string& path = config().control;
        if (path.empty()) return;
        struct stat now = {};
        if (stat(path.c_str(), &now) != 0) {
            *this = Control();
            return;
        }
        if (now.st_mtim.tv_sec == changed.tv_sec && now.st_mtim.tv_nsec == changed.tv_nsec && now.st_size == size &&
            now.st_ino == inode) {
            return;
        }
        changed = now.st_mtim;
        size = now.st_size;
        inode = now.st_ino;
        rules.clear();
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        // No abort here: the file may be half written, and is read again when the rest is.
        if (std::string bad = parse_rules(text.str(), rules); !bad.empty()) {
            fprintf(stderr, "fakecuda: %s: '%s' is not symbol[@device]:n:code\n", path.c_str(), bad.c_str());
        }
    }
};

std::vector<Rule>& environment_rules() {
    static std::vector<Rule>* rules = [] {
        auto* made = new std::vector<Rule>;
        if (std::string bad = parse_rules(config().fail, *made); !bad.empty()) {
            die("FAKECUDA_FAIL: '" + bad + "' is not symbol[@device]:n:code");
        }
        return made;
    }();
    return *rules;
}

void match(std::vector<Rule>& rules, Symbol symbol, uint64_t devices, Fault& fault) {
    for (Rule& rule : rules) {
        if (rule.symbol != symbol) continue;
        uint64_t only = rule.device < 0 ? ~uint64_t{0} : uint64_t{1} << rule.device;
        if (rule.device >= 0 && (devices & only) == 0) continue;
        ++rule.seen;
        if (fault.code == kSuccess && (rule.n == 0 || rule.n == rule.seen)) fault = {rule.code, devices & only};
    }
}

// A library that was loaded before all others may decide about every call, too; see tests/faults.
int preloaded_error(Symbol symbol) {
    using Ask = int (*)(const char*);
    static const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "gshm_test_device_error"));
    return ask == nullptr ? 0 : ask(symbol_name(symbol));
}

bool is_context_lost(CUresult code) {
    constexpr CUresult kLaunchTimeout = 702;
    constexpr CUresult kAssert = 710;
    return code == kErrorIllegalAddress || code == kLaunchTimeout || code == kAssert || (code >= 714 && code <= 719);
}

}  // namespace

Fault next_fault(Symbol symbol, uint64_t devices) {
    static auto* control = new Control;
    control->refresh();
    Fault fault;
    match(environment_rules(), symbol, devices, fault);
    match(control->rules, symbol, devices, fault);
    if (fault.code == kSuccess) fault = {static_cast<CUresult>(preloaded_error(symbol)), devices};
    return fault;
}

bool is_sticky(CUresult code) {
    return is_context_lost(code) || is_device_lost(code);
}

bool is_device_lost(CUresult code) {
    switch (code) {
        case kErrorEccUncorrectable:
        case kErrorNvlinkUncorrectable:
        case kErrorContained:
        case kErrorExternalDevice:
        case kErrorUnknown: return true;
        default: return config().sticky_all && is_context_lost(code);
    }
}

}  // namespace fakecuda

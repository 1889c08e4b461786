// Command lines of the examples: "--name value" options and "--name" switches, each declared once.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

class Options {
public:
    explicit Options(std::string about) : about_(std::move(about)) {}

    Options& text(std::string name, std::string& target, std::string help) {
        return add(std::move(name), true, std::move(help), [&target](std::string_view value) {
            target = value;
            return true;
        });
    }
    Options& seconds(std::string name, std::optional<std::chrono::seconds>& target, std::string help) {
        return add(std::move(name), true, std::move(help), [&target](std::string_view value) {
            unsigned number = 0;
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
            if (error != std::errc() || end != value.data() + value.size()) return false;
            target = std::chrono::seconds(number);
            return true;
        });
    }
    // A number of bytes, with an optional suffix K, M or G.
    Options& bytes(std::string name, uint64_t& target, std::string help) {
        return add(std::move(name), true, std::move(help), [&target](std::string_view value) {
            uint64_t number = 0;
            const char* const last = value.data() + value.size();
            auto [end, error] = std::from_chars(value.data(), last, number);
            if (error != std::errc()) return false;
            constexpr std::string_view kUnits = "KMG";
            int shift = 0;
            if (end != last) {
                const size_t unit = kUnits.find(*end++);
                if (unit == kUnits.npos) return false;
                shift = 10 * static_cast<int>(unit + 1);
            }
            if (end != last || number > UINT64_MAX >> shift) return false;
            target = number << shift;
            return true;
        });
    }
    Options& flag(std::string name, bool& target, std::string help) {
        return add(std::move(name), false, std::move(help), [&target](std::string_view) { return target = true; });
    }

    // Exits after --help (status 0) and after an error (2).
    void parse(int argc, char** argv) const {
        for (int i = 1; i < argc; ++i) {
            const std::string_view argument = argv[i];
            if (argument == "--help") usage(stdout, argv[0], 0);
            const Option* option = find(argument);
            if (!option) {
                std::fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]);
                usage(stderr, argv[0], 2);
            }
            if (option->has_value && i + 1 == argc) {
                std::fprintf(stderr, "%s: %s needs a value\n", argv[0], argv[i]);
                usage(stderr, argv[0], 2);
            }
            const char* value = option->has_value ? argv[++i] : "";
            if (!option->set(value)) {
                std::fprintf(stderr, "%s: %s cannot be \"%s\"\n", argv[0], option->name.c_str(), value);
                usage(stderr, argv[0], 2);
            }
        }
    }

private:
    struct Option {
        std::string name;
        bool has_value;
        std::string help;
        std::function<bool(std::string_view)> set;
    };

    Options& add(std::string name, bool has_value, std::string help, std::function<bool(std::string_view)> set) {
        options_.push_back({std::move(name), has_value, std::move(help), std::move(set)});
        return *this;
    }
    const Option* find(std::string_view name) const {
        for (const auto& option : options_)
            if (option.name == name) return &option;
        return nullptr;
    }
    [[noreturn]] void usage(FILE* stream, const char* program, int exit_code) const {
        std::fprintf(stream, "usage: %s [options]\n%s\n\n", program, about_.c_str());
        for (const auto& option : options_)
            std::fprintf(stream, "  %-20s %s\n", (option.name + (option.has_value ? " VALUE" : "")).c_str(),
                         option.help.c_str());
        std::exit(exit_code);
    }

    std::string about_;
    std::vector<Option> options_;
};

// gshm.toml in the scratch folder, and gshmd --check-config.
#pragma once

#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"

namespace gshm::core::test {

class ConfigTest : public ::testing::Test, protected DaemonFixture {
protected:
    std::string config() const { return scratch() + "/gshm.toml"; }
    void write(const std::string& text) const { write_file(config(), text); }
    static void write_file(const std::string& path, const std::string& text) {
        std::ofstream(path, std::ios::trunc) << text;
        ::chmod(path.c_str(), 0644);
    }
    // gshmd --config FILE --check-config ARGS...
    RunResult check(const std::vector<std::string>& args = {}, const std::vector<std::string>& env = {}) const {
        return check_file(config(), args, env);
    }
    static RunResult check_file(const std::string& file, const std::vector<std::string>& args = {},
                                const std::vector<std::string>& env = {}) {
        std::vector<std::string> argv = {bin("gshmd"), "--config", file, "--check-config"};
        argv.insert(argv.end(), args.begin(), args.end());
        ChildProcess child;
        EXPECT_TRUE(child.spawn(argv, env));
        return child.finish();
    }
    struct Effective {
        std::string value;   // as in gshm.toml; empty: a default that cannot be written
        std::string source;  // "default", "--limit", "/x/gshm.toml:1:1"
    };
    // What --check-config has printed, by key.
    static std::map<std::string, Effective> parse(const std::string& out) {
        std::map<std::string, Effective> all;
        std::istringstream lines(out);
        std::string section;
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with('[')) section = line.substr(1, line.size() - 2) + ".";
            const size_t source = line.rfind("  # ");
            if (source == line.npos) continue;
            const size_t equals = line.find(" = ");
            if (line.starts_with("# "))
                all[section + line.substr(2, line.find(':') - 2)] = {"", line.substr(source + 4)};
            else
                all[section + line.substr(0, equals)] = {line.substr(equals + 3, source - equals - 3),
                                                         line.substr(source + 4)};
        }
        return all;
    }
    std::map<std::string, Effective> effective(const std::vector<std::string>& args = {}) const {
        const auto result = check(args);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return parse(result.out);
    }
};

}  // namespace gshm::core::test

// A daemon and files for the tests of `gshm put` and `gshm get`.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sys/mount.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon_fixture.h"
#include <gshm/gshm.h>

namespace gshm::core::test {

class CliCopyTest : public ::testing::Test, protected DaemonFixture {
protected:
    using Json = nlohmann::json;
    using Args = std::vector<std::string>;
    struct Closer {
        void operator()(gshm_client* client) const { gshm_disconnect(client); }
        void operator()(gshm_object* object) const { gshm_close(object); }
    };
    using Client = std::unique_ptr<gshm_client, Closer>;
    using Object = std::unique_ptr<gshm_object, Closer>;

    void SetUp() override { ASSERT_TRUE(start({"--device", "host:512M"})) << log(); }
    void TearDown() override {
        for (const auto& folder : mounted_) ::umount2(folder.c_str(), MNT_DETACH);
    }

    // The standard output of a command that must succeed without any message.
    std::string ok(const Args& args, std::string_view input = {}) {
        const auto result = run_cli(args, input);
        EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(args) << '\n' << result.err;
        EXPECT_EQ(result.err, "") << ::testing::PrintToString(args);
        return result.out;
    }
    Json json(Args args, std::string_view input = {}) {
        args.insert(args.begin(), "--json");
        return Json::parse(ok(args, input), nullptr, false);
    }
    // Fails with this exit code and a message that contains all texts.
    void fails(int exit_code, const Args& args, const Args& texts, std::string_view input = {}, const Args& env = {}) {
        const auto result = run_cli(args, input, env);
        EXPECT_EQ(result.exit_code, exit_code) << ::testing::PrintToString(args) << '\n' << result.err;
        for (const auto& text : texts)
            EXPECT_NE(result.err.find(text), std::string::npos) << text << "\n" << result.err;
    }
    // Runs a shell command, in which $gshm is the gshm of this build.
    RunResult shell(const std::string& command) {
        ChildProcess child;
        const auto script = "gshm=\"" + bin("gshm") + " --dir " + dir() + "\"; cd " + scratch() + "; " + command;
        EXPECT_TRUE(child.spawn({"/bin/bash", "-c", script}));
        return child.finish();
    }

    std::string file(const std::string& name) const { return scratch() + "/" + name; }
    std::string write(const std::string& name, std::string_view bytes) const {
        const std::filesystem::path path = file(name);
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << bytes;
        return path.string();
    }
    std::string write_large(const std::string& name, uint64_t bytes) const {
        write(name, noise(1 << 20, 7));
        std::filesystem::resize_file(file(name), bytes);  // the rest is a hole
        return file(name);
    }
    static std::string read(const std::string& path) {
        std::ifstream stream(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    // Different bytes for each seed.
    static std::string noise(size_t bytes, unsigned seed) {
        std::string text(bytes, '\0');
        std::mt19937_64 random(seed);
        for (size_t i = 0; i < bytes; i += 8) {
            const uint64_t number = random();
            std::memcpy(text.data() + i, &number, std::min<size_t>(8, bytes - i));
        }
        return text;
    }
    // Compares the files and bytes below both; returns the difference.
    static std::string difference(const std::string& left, const std::string& right) {
        ChildProcess child;
        if (!child.spawn({"/usr/bin/diff", "-rq", "--no-dereference", left, right})) return "diff does not start";
        const auto result = child.finish();
        return result.exit_code == 0 ? "" : result.out + result.err + "exit code " + std::to_string(result.exit_code);
    }

    bool exists(const std::string& name) { return run_cli({"stat", "--", name}).exit_code == 0; }
    Json stat(const std::string& name) { return json({"stat", "--", name})["objects"][0]; }
    std::string transfer(const std::string& name) {
        const auto info = stat(name);
        for (const auto& attribute : info["attributes"])
            if (attribute["key"] == "transfer") return attribute["text"];
        return {};
    }
    uint64_t object_bytes() { return json({"df"})["devices"][0]["object_bytes"]; }

    Client connect() {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        const auto folder = dir();
        options.dir = folder.c_str();
        gshm_client* client = nullptr;
        EXPECT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
        return Client(client);
    }

    // A separate file system of that size; false: not permitted here.
    bool mount_small(const std::string& folder, const std::string& size) {
        std::filesystem::create_directories(folder);
        if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, ("size=" + size).c_str()) != 0) return false;
        mounted_.push_back(folder);
        return true;
    }
    size_t files_in(const std::string& folder) const {
        size_t count = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
        return count;
    }
    static bool eventually(const std::function<bool()>& holds) {
        for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120); !holds();) {
            if (std::chrono::steady_clock::now() >= deadline) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return true;
    }

private:
    std::vector<std::string> mounted_;
};

}  // namespace gshm::core::test

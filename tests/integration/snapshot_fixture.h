// A daemon with objects, and the folder of their snapshot.
#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "integration/daemon_fixture.h"
#include <gshm/gshm.h>

namespace gshm::core::test {

class SnapshotTest : public ::testing::Test, protected DaemonFixture {
protected:
    using Json = nlohmann::json;
    using Args = std::vector<std::string>;
    struct Closer {
        void operator()(gshm_client* client) const { gshm_disconnect(client); }
    };
    using Client = std::unique_ptr<gshm_client, Closer>;

    void SetUp() override { ASSERT_TRUE(start({"--device", "host:1G"})) << log(); }

    // As after a reboot: no objects are left.
    void restart(const Args& args = {"--device", "host:1G"}, const Args& env = {}) {
        stop();
        ASSERT_TRUE(start(args, env)) << log();
    }
    std::string saved(const std::string& file = {}) const {
        return scratch() + "/saved" + (file.empty() ? "" : "/" + file);
    }

    std::string ok(const Args& args, std::string_view input = {}) {
        const auto result = run_cli(args, input);
        EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(args) << '\n' << result.err;
        EXPECT_EQ(result.err, "") << ::testing::PrintToString(args);
        return result.out;
    }
    Json json(Args args) {
        args.insert(args.begin(), "--json");
        return Json::parse(ok(args), nullptr, false);
    }
    // Fails with this exit code and a message that contains all texts.
    void fails(int exit_code, const Args& args, const Args& texts) {
        const auto result = run_cli(args);
        EXPECT_EQ(result.exit_code, exit_code) << ::testing::PrintToString(args) << '\n' << result.err;
        for (const auto& text : texts)
            EXPECT_NE(result.err.find(text), std::string::npos) << text << "\n" << result.err;
    }
    Json stat(const std::string& name) { return json({"stat", name})["objects"][0]; }
    bool exists(const std::string& name) { return run_cli({"stat", name}).exit_code == 0; }

    Client connect() {
        gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
        const auto folder = dir();
        options.dir = folder.c_str();
        gshm_client* client = nullptr;
        EXPECT_EQ(gshm_connect(&options, &client), 0) << gshm_last_error();
        return Client(client);
    }

    // Incompressible bytes, different for each seed.
    static std::string noise(size_t bytes, unsigned seed) {
        std::string text(bytes, '\0');
        std::mt19937_64 random(seed);
        for (size_t i = 0; i + 8 <= bytes; i += 8) {
            const uint64_t number = random();
            std::memcpy(text.data() + i, &number, 8);
        }
        return text;
    }
    void put(const std::string& name, const std::string& bytes, const std::string& mode = "0600",
             const std::string& device = "host") {
        const auto path = scratch() + "/source";
        std::ofstream(path, std::ios::binary) << bytes;
        ok({"put", path, name, "--mode", mode, "--device", device});
    }
    std::string cat(const std::string& name) { return ok({"cat", name}); }

    static std::string read_file(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static void write_file(const std::string& path, std::string_view bytes) {
        std::ofstream(path, std::ios::binary) << bytes;
    }
    // Flips one bit.
    static void damage(const std::string& path, size_t offset) {
        auto bytes = read_file(path);
        ASSERT_LT(offset, bytes.size());
        bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
        write_file(path, bytes);
    }
    Json manifest_entry(const std::string& name) {
        std::ifstream file(saved("manifest.jsonl"));
        for (std::string line; std::getline(file, line);) {
            const auto entry = Json::parse(line);
            if (entry.value("kind", "") == "object" && entry["names"][0] == name) return entry;
        }
        return nullptr;
    }
    uint64_t data_bytes() const {
        uint64_t total = 0;
        std::error_code gone;
        for (const auto& entry : std::filesystem::directory_iterator(saved(), gone))
            if (entry.path().filename().string().starts_with("data-")) total += entry.file_size(gone);
        return total;
    }
    static bool eventually(const std::function<bool()>& holds) {
        for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120); !holds();) {
            if (std::chrono::steady_clock::now() >= deadline) return false;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        return true;
    }
};

}  // namespace gshm::core::test

// gshm load, unload, and the tensors in ls -l and stat.
#include "integration/cli_copy_fixture.h"
#include "integration/load_fixture.h"

namespace gshm::core::test {
namespace {

class CliLoadTest : public CliCopyTest {
protected:
    void SetUp() override {
        CliCopyTest::SetUp();
        for (int i = 0; i < 30; ++i) {
            many_.push_back(
                make_tensor("layers." + std::to_string(i) + ".w", "BF16", {4, 8}, static_cast<uint64_t>(i)));
        }
        few_ = {make_tensor("head.weight", "F32", {3, 5}, 100), make_tensor("bias", "F16", {7}, 101)};
        write("llama/model-00001-of-00002.safetensors", file_bytes(many_));
        write("llama/model-00002-of-00002.safetensors", file_bytes(few_));
    }
    static constexpr const char* kFirst = "models/llama/model-00001-of-00002.safetensors";
    static constexpr const char* kSecond = "models/llama/model-00002-of-00002.safetensors";

    std::vector<TestTensor> many_, few_;
};

TEST_F(CliLoadTest, LoadPrintsTheNamesAndReadsOnce) {
    const auto names = std::string(kFirst) + "\n" + kSecond + "\n";
    EXPECT_EQ(ok({"load", file("llama/"), "models/llama/"}), names);
    EXPECT_EQ(ok({"load", file("llama"), "models/llama"}), names);
    const auto again = json({"load", file("llama"), "models/llama"});
    EXPECT_EQ(again["read_bytes"], 0);
    ASSERT_EQ(again["objects"].size(), 2u);
    EXPECT_EQ(again["objects"][1]["name"], kSecond);
    EXPECT_EQ(again["objects"][1]["tensors"], 2);
    EXPECT_EQ(again["objects"][1]["bytes"], 74);
    EXPECT_EQ(again["objects"][1]["shared"], true);
    // The bytes are there for every other way to read them.
    const auto tensors = stat(kSecond)["tensors"];
    ASSERT_EQ(tensors.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(tensors[i]["name"], few_[i].name);
        EXPECT_EQ(tensors[i]["dtype"], few_[i].dtype);
        EXPECT_EQ(tensors[i]["shape"], Json(few_[i].shape));
        EXPECT_EQ(ok({"cat", kSecond, "--offset", std::to_string(uint64_t{tensors[i]["offset"]}), "--length",
                      std::to_string(few_[i].bytes.size())}),
                  few_[i].bytes);
    }
}

TEST_F(CliLoadTest, NamesAreMadeFromThePath) {
    const auto path = file("llama/model-00002-of-00002.safetensors");
    EXPECT_EQ(ok({"load", path}), "loaded-" + std::to_string(geteuid()) + path + "@host\n");
    EXPECT_EQ(json({"load", path})["read_bytes"], 0);
}

TEST_F(CliLoadTest, FiltersChooseTensors) {
    const auto loaded = json({"load", file("llama"), "m", "--filter", "layers.2*.w", "--filter", "bias"});
    ASSERT_EQ(loaded["objects"].size(), 2u);
    EXPECT_EQ(loaded["objects"][0]["tensors"], 11);
    EXPECT_EQ(loaded["objects"][1]["tensors"], 1);
    fails(4, {"load", file("llama"), "m", "--filter", "nothing"}, {"no tensor that matches"});
}

TEST_F(CliLoadTest, TensorsAreListed) {
    ok({"load", file("llama"), "models/llama"});
    ok({"create", "models/llama/other", "--size", "16"});
    const auto list = ok({"ls", "-l", "models/llama"});
    EXPECT_NE(list.find("TENSORS  NAME"), std::string::npos) << list;
    EXPECT_NE(list.find("     30  model-00001-of-00002.safetensors"), std::string::npos) << list;
    EXPECT_NE(list.find("      -  other"), std::string::npos) << list;
    const auto one = ok({"ls", "-l", kSecond});
    EXPECT_NE(one.find("F32   [3, 5]    60"), std::string::npos) << one;
    EXPECT_NE(one.find("head.weight"), std::string::npos) << one;
    EXPECT_EQ(ok({"ls", "-l", "models"}).find("TENSORS"), std::string::npos);  // there are none in the list

    auto text = ok({"stat", kFirst});
    EXPECT_NE(text.find("BF16  [4, 8]"), std::string::npos) << text;
    EXPECT_NE(text.find("and 10 more; --all shows them"), std::string::npos) << text;
    EXPECT_EQ(text.find("layers.29.w"), std::string::npos) << text;
    text = ok({"stat", "--all", kFirst});
    EXPECT_NE(text.find("layers.29.w"), std::string::npos) << text;
    EXPECT_EQ(text.find("more"), std::string::npos) << text;
}

TEST_F(CliLoadTest, AnAttributeAloneMakesNoTensors) {
    ok({"create", "x", "--size", "16"});
    ok({"attr", "x", GSHM_TENSORS_ATTRIBUTE, "{\"format\":1,\"tensors\":3}"});
    EXPECT_NE(ok({"stat", "x"}).find("no tensors can be shown"), std::string::npos);
    EXPECT_FALSE(stat("x").contains("tensors"));
    ok({"attr", "x", GSHM_TENSORS_ATTRIBUTE, "nonsense"});
    EXPECT_EQ(stat("x")["state"], "open");
}

TEST_F(CliLoadTest, UnloadRemovesTensorsOnly) {
    ok({"load", file("llama"), "models/llama"});
    ok({"create", "models/other", "--size", "16"});
    fails(9, {"unload", "models/other"}, {"not a loaded file", "gshm rm"});
    // As a checkpoint has it.
    ok({"create", "models/saved", "--size", "16"});
    ok({"attr", "models/saved", GSHM_TENSORS_ATTRIBUTE, "{\"format\":1,\"tensors\":3,\"header_bytes\":8}"});
    fails(9, {"unload", "models/saved"}, {"not a loaded file", "gshm rm"});
    EXPECT_EQ(json({"unload", kFirst})["removed"], Json::array({kFirst}));
    EXPECT_EQ(ok({"unload", "models/"}), "");
    EXPECT_EQ(ok({"ls", "-r"}), "models/other\nmodels/saved\n");
    fails(4, {"unload", "models"}, {"nothing is loaded"});
    fails(4, {"unload", "missing"}, {"missing"});
}

TEST_F(CliLoadTest, UnloadRemovesAllSelectionsOfAFile) {
    const auto path = file("llama/model-00002-of-00002.safetensors");
    for (const std::string name : {"m", "d/m", "m+more", "m2"}) {
        ok({"load", path, name});
        ok({"load", path, name, "--filter", "bias"});
    }
    EXPECT_EQ(json({"unload", "m"})["removed"].size(), 2u);
    EXPECT_EQ(json({"unload", "d/m"})["removed"].size(), 2u);
    EXPECT_EQ(json({"unload", "m+more"})["removed"].size(), 2u);
    ok({"create", "m2@host", "--size", "16"});  // not loaded
    ok({"rm", "m2"});
    EXPECT_EQ(json({"unload", "m2"})["removed"].size(), 1u);  // the selection
    EXPECT_EQ(ok({"ls", "-r"}), "m2@host\n");
    fails(4, {"unload", "m2"}, {"m2"});
}

TEST_F(CliLoadTest, ErrorsHaveTheReason) {
    fails(4, {"load", file("missing")}, {"missing", "No such file"});
    write("torch/pytorch_model.bin", "PK\x03\x04" + std::string(100, 'x'));
    fails(4, {"load", file("torch")}, {"has no safetensors files", "save_file"});
    fails(1, {"load", file("torch/pytorch_model.bin")}, {"a zip file", "torch.save()"});
    fails(4, {"unload", file("torch/pytorch_model.bin")}, {"nothing is loaded as", "loaded-"});
    write("bad.safetensors", "{}");
    fails(1, {"load", file("bad.safetensors")}, {"bad.safetensors", "too small"});
    write("up/model.safetensors.index.json", R"({"weight_map":{"a":"../x.safetensors"}})");
    fails(1, {"load", file("up")}, {"not a path below its folder"});
    ok({"create", "mine", "--size", "16"});
    fails(6, {"load", file("llama/model-00002-of-00002.safetensors"), "mine"}, {"mine", "not a loaded file"});
    fails(4, {"load", file("llama"), "m", "--device", "cuda:5"}, {"cuda:5", "gshmd has: host"});
    EXPECT_EQ(ok({"ls", "-r"}), "mine\n");
}

}  // namespace
}  // namespace gshm::core::test

// gshm_load(): files and folders of tensors, selections, names, and errors that leave nothing behind.
#include "integration/load_fixture.h"

namespace gshm::core::test {
namespace {

class LoadOn : public LoadTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(LoadOn, LoadsEveryTensorOnceAndSharesIt) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors, "{\"format\":\"pt\"}"));
    const auto first = load(client_.get(), file, {.device = GetParam()});
    ASSERT_EQ(gshm_model_count(first.get()), 1u);
    const auto made = part(first);
    EXPECT_EQ(difference(made, tensors), "");
    EXPECT_FALSE(is_shared(made));
    EXPECT_EQ(made.read_bytes, bytes_of(tensors));
    EXPECT_STREQ(made.device, GetParam());
    EXPECT_STREQ(made.file, "m.safetensors");
    EXPECT_EQ(std::string(made.name), "loaded-0" + file + "@" + GetParam());
    EXPECT_EQ(stat(client_.get(), made.name).state, uint32_t{GSHM_STATE_SEALED});
    ASSERT_EQ(gshm_tensors_metadata_count(made.tensors, 0), 1u);
    EXPECT_STREQ(gshm_tensors_metadata(made.tensors, 0, 0)->name, "format");
    EXPECT_EQ(names(client_.get()), std::set<std::string>{made.name});  // no claim is left

    const auto other = connect();
    const auto second = load(other.get(), file, {.device = GetParam()});
    const auto again = part(second);
    EXPECT_TRUE(is_shared(again));
    EXPECT_EQ(again.read_bytes, 0u);
    EXPECT_EQ(gshm_id(again.object), gshm_id(made.object));
    EXPECT_EQ(difference(again, tensors), "");

    // The object describes itself.
    gshm_tensors* table = nullptr;
    ASSERT_EQ(gshm_tensors_of_object(again.object, &table), 0) << gshm_last_error();
    EXPECT_EQ(gshm_tensors_count(table), tensors.size());
    EXPECT_EQ(gshm_tensors_size(table, 0), gshm_size(again.object));
    gshm_tensors_free(table);
    EXPECT_NE(attribute(made.name, GSHM_TENSORS_ATTRIBUTE).find("\"tensors\":5"), std::string::npos);
}

TEST_P(LoadOn, SlicesAreThoseOfTheReference) {
    std::vector<TestTensor> tensors = {make_tensor("cube", "F16", {6, 5, 7}, 1), make_tensor("row", "F32", {1000}, 2),
                                       make_tensor("wide", "U8", {300, 77}, 3), make_tensor("rest", "I8", {13}, 4)};
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    std::mt19937_64 random(7);
    for (int round = 0; round < 8; ++round) {
        std::vector<gshm_tensor_choice> choices;
        std::map<std::string, std::string> expected;
        uint64_t bytes = 0;
        for (size_t i = 0; i < 3; ++i) {
            const auto& tensor = tensors[i];
            const size_t dimension = random() % tensor.shape.size();
            const uint64_t begin = random() % (tensor.shape[dimension] + 1);
            const uint64_t end = begin + random() % (tensor.shape[dimension] - begin + 1);
            choices.push_back(choice(tensor.name.c_str(), nullptr, static_cast<int>(dimension), begin, end));
            expected[tensor.name] = reference_slice(tensor, dimension, begin, end);
            bytes += expected[tensor.name].size();
        }
        const auto model = load(client_.get(), file, {.device = GetParam(), .choices = choices});
        const auto made = part(model);
        EXPECT_EQ(gshm_tensors_count(made.tensors), 3u);
        EXPECT_EQ(made.read_bytes, is_shared(made) ? 0 : bytes);
        for (const auto& [name, slice] : expected) {
            const auto loaded = find(made, name);
            ASSERT_TRUE(loaded) << name;
            EXPECT_EQ(loaded->bytes, slice) << name;
        }
        EXPECT_FALSE(find(made, "rest"));
    }
}

TEST_P(LoadOn, SlicesWithManyRangesAreReadToTheEnd) {
    const std::vector<TestTensor> tensors = {make_tensor("w", "U8", {5000, 24}, 1)};
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    const auto model = load(client_.get(), file, {.device = GetParam(), .choices = {choice("w", nullptr, 1, 5, 12)}});
    const auto loaded = find(part(model), "w");
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->shape, (std::vector<uint64_t>{5000, 7}));
    EXPECT_TRUE(loaded->bytes == reference_slice(tensors[0], 1, 5, 12));
}

INSTANTIATE_TEST_SUITE_P(Devices, LoadOn, ::testing::Values("host", "cuda:0"), device_of);

TEST_F(LoadTest, ThePartsOfAModelGoToTheirDevices) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    const auto model = load(client_.get(), file,
                            {.name = "m",
                             .choices = {choice("layers.0.w", "cuda:1"), choice("layers.0.b", "cuda:0"), choice("one"),
                                         choice("layers.1.w", "cuda:1", 0, 0, 32)}});
    ASSERT_EQ(gshm_model_count(model.get()), 3u);
    std::map<std::string, size_t> by_device;
    for (size_t i = 0; i < 3; ++i) {
        const auto made = part(model, i);
        by_device[made.device] = i;
        EXPECT_TRUE(std::string(made.name).starts_with("m@" + std::string(made.device) + "+")) << made.name;
        EXPECT_STREQ(gshm_device(made.object), made.device);
    }
    ASSERT_EQ(by_device.size(), 3u);
    EXPECT_EQ(find(part(model, by_device["cuda:1"]), "layers.0.w")->bytes, tensors[0].bytes);
    EXPECT_EQ(find(part(model, by_device["cuda:1"]), "layers.1.w")->bytes, reference_slice(tensors[4], 0, 0, 32));
    EXPECT_EQ(find(part(model, by_device["cuda:0"]), "layers.0.b")->bytes, tensors[1].bytes);
    EXPECT_EQ(find(part(model, by_device["host"]), "one")->bytes, tensors[2].bytes);
    // A tensor may be on several devices, and once on each.
    EXPECT_EQ(gshm_model_count(load(client_.get(), file, {.choices = {choice("one", "cuda:0"), choice("one")}}).get()),
              2u);
    Model none;
    EXPECT_EQ(load_code(client_.get(), file, {.choices = {choice("one"), choice("one")}}, none), -EINVAL);
    EXPECT_EQ(load_code(client_.get(), file, {.choices = {choice("missing")}}, none), -ENOENT);
    EXPECT_EQ(load_code(client_.get(), file, {.choices = {choice("one", "cuda:7")}}, none), -ENODEV);
    EXPECT_EQ(load_code(client_.get(), file, {.device = "tape"}, none), -ENODEV);
    EXPECT_NE(std::string(gshm_last_error()).find("\"tape\"; gshmd has: host, cuda:0, cuda:1"), std::string::npos)
        << gshm_last_error();
    EXPECT_EQ(load_code(client_.get(), file, {.choices = {choice("one", nullptr, 0, uint64_t(-3), 2)}}, none), -EINVAL);
    EXPECT_EQ(load_code(client_.get(), file, {.choices = {choice("layers.0.w", nullptr, 2, 0, 1)}}, none), -EINVAL);
    EXPECT_EQ(load_code(client_.get(), file, {.choices = {choice("layers.0.w", nullptr, 0, 5, 34)}}, none), -EINVAL);
}

TEST_F(LoadTest, AFolderWithAnIndexIsOneModel) {
    const std::vector<TestTensor> first = {make_tensor("a", "F32", {100}, 1)};
    const std::vector<TestTensor> second = {make_tensor("b", "F32", {50, 2}, 2), make_tensor("c", "U8", {9}, 3)};
    write_file("llama/model-00001-of-00002.safetensors", file_bytes(first));
    write_file("llama/model-00002-of-00002.safetensors", file_bytes(second));
    write_file("llama/consolidated.safetensors", file_bytes(second));  // not named by the index
    write_file("llama/model.safetensors.index.json",
               R"({"metadata":{"total_size":1},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
               R"("b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
    const auto model = load(client_.get(), path("llama/"), {.name = "models/llama"});
    ASSERT_EQ(gshm_model_count(model.get()), 2u);
    EXPECT_EQ(difference(part(model, 0), first), "");
    EXPECT_EQ(difference(part(model, 1), second), "");
    EXPECT_EQ(names(client_.get()), (std::set<std::string>{"models/llama/model-00001-of-00002.safetensors",
                                                           "models/llama/model-00002-of-00002.safetensors"}));
    // Files of which nothing is selected have no part.
    const auto some = load(client_.get(), path("llama"), {.choices = {choice("c")}});
    ASSERT_EQ(gshm_model_count(some.get()), 1u);
    EXPECT_STREQ(part(some).file, "model-00002-of-00002.safetensors");
    // The object may outlive the model.
    Object taken(gshm_model_take(const_cast<Model&>(model).get(), 0));
    ASSERT_TRUE(taken);
    EXPECT_EQ(gshm_model_take(model.get(), 0), nullptr);
    EXPECT_EQ(gshm_model_take(model.get(), 9), nullptr);
    EXPECT_GT(gshm_size(taken.get()), 400u);
}

TEST_F(LoadTest, FoldersThatAreNoModelAreRefusedWithTheReason) {
    const auto refused = [&](const std::string& folder, int code, const std::string& reason) {
        Model none;
        EXPECT_EQ(load_code(client_.get(), path(folder), {}, none), code) << folder << ": " << gshm_last_error();
        EXPECT_NE(std::string(gshm_last_error()).find(reason), std::string::npos) << gshm_last_error();
    };
    const auto index = [](const std::string& map) { return "{\"weight_map\":{" + map + "}}"; };
    const auto a = file_bytes({make_tensor("a", "F32", {10}, 1)});
    const auto secret = write_file("secret.safetensors", a);

    std::filesystem::create_directories(path("empty"));
    refused("empty", -ENOENT, "no safetensors files");
    refused("missing", -ENOENT, "missing");
    write_file("up/model.safetensors.index.json", index("\"a\":\"../secret.safetensors\""));
    refused("up", -EBADMSG, "not a path below its folder");
    write_file("absolute/model.safetensors.index.json", index("\"a\":\"" + secret + "\""));
    refused("absolute", -EBADMSG, "not a path below its folder");
    write_file("link/model.safetensors.index.json", index("\"a\":\"inner.safetensors\""));
    std::filesystem::create_symlink("../secret.safetensors", path("link/inner.safetensors"));
    refused("link", -EXDEV, "leads out of its folder");
    write_file("linked_folder/model.safetensors.index.json", index("\"a\":\"sub/secret.safetensors\""));
    std::filesystem::create_symlink("..", path("linked_folder/sub"));
    refused("linked_folder", -EXDEV, "leads out of its folder");
    // Another model's index, in a folder where its files have namesakes.
    write_file("elsewhere.json", index("\"a\":\"1.safetensors\""));
    std::filesystem::create_directories(path("linked_index"));
    std::filesystem::create_symlink("../elsewhere.json", path("linked_index/model.safetensors.index.json"));
    write_file("linked_index/1.safetensors", a);
    refused("linked_index", -EXDEV, "leads out of its folder");
    write_file("lacks/model.safetensors.index.json", index("\"a\":\"1.safetensors\",\"b\":\"1.safetensors\""));
    write_file("lacks/1.safetensors", a);
    refused("lacks", -EBADMSG, "lacks it");
    write_file("gone/model.safetensors.index.json", index("\"a\":\"1.safetensors\""));
    refused("gone", -ENOENT, "1.safetensors");
    write_file("twice/model.safetensors.index.json", index("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\""));
    write_file("twice/1.safetensors", a);
    write_file("twice/2.safetensors", file_bytes({make_tensor("a", "F32", {10}, 1), make_tensor("b", "F32", {1}, 1)}));
    refused("twice", -EBADMSG, "is in two files");
    write_file("bad/model.safetensors", "{}");
    refused("bad", -EBADMSG, "too small");
    write_file("index/model.safetensors.index.json", "[]");
    refused("index", -EBADMSG, "object is expected");
    ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
    refused("fifo", -EINVAL, "not a regular file");
    EXPECT_TRUE(names(client_.get()).empty());
}

TEST_F(LoadTest, SnapshotsOfTheHubShareTheirBlobs) {
    const auto tensors = some_tensors(1);
    const std::string blob = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    write_file("hub/blobs/" + blob, file_bytes(tensors));
    for (const char* revision : {"r1", "r2"}) {
        std::filesystem::create_directories(path("hub/snapshots/") + revision);
        std::filesystem::create_symlink("../../blobs/" + blob,
                                        path("hub/snapshots/") + revision + "/model.safetensors");
    }
    const auto first = load(client_.get(), path("hub/snapshots/r1"), {});
    EXPECT_EQ(difference(part(first), tensors), "");
    EXPECT_STREQ(part(first).file, "model.safetensors");
    EXPECT_TRUE(is_shared(part(load(client_.get(), path("hub/snapshots/r2"), {}))));
    EXPECT_TRUE(is_shared(part(load(client_.get(), path("hub/snapshots/r1/model.safetensors"), {}))));
    EXPECT_NE(attribute(part(first).name, GSHM_TENSORS_ATTRIBUTE).find("blob:" + blob), std::string::npos);
    // A copy of the cache has the same blobs.
    const auto name = std::string("models/hub");
    const auto named = load(client_.get(), path("hub/snapshots/r1"), {.name = name.c_str()});
    std::filesystem::copy(path("hub"), path("copy"),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    std::filesystem::last_write_time(path("copy/blobs/" + blob),
                                     std::filesystem::last_write_time(path("hub/blobs/" + blob)));
    EXPECT_TRUE(is_shared(part(load(client_.get(), path("copy/snapshots/r2"), {.name = name.c_str()}))));
    // A blob that was written again is another one, whatever its name promises.
    const auto changed = some_tensors(50);
    write_file("hub/blobs/" + blob, file_bytes(changed));
    std::filesystem::last_write_time(path("hub/blobs/" + blob), std::filesystem::file_time_type::clock::now() + 1h);
    const auto second = load(client_.get(), path("hub/snapshots/r1"), {});
    EXPECT_FALSE(is_shared(part(second)));
    EXPECT_EQ(difference(part(second), changed), "");
}

// A folder of any name can be laid out like a hub's, with files of any name in blobs/.
TEST_F(LoadTest, OnlyAHashIsTheNameOfABlob) {
    const std::string digits(64, 'a');
    for (const auto& name : {std::string("latest"), std::string(39, 'a'), std::string(63, 'a') + "g",
                             std::string(64, 'A'), digits + "a", std::string(40, 'a'), digits}) {
        write_file("hub/blobs/" + name, file_bytes(some_tensors(1)));
        std::filesystem::create_directories(path("hub/snapshots/r"));
        std::filesystem::remove(path("hub/snapshots/r/model.safetensors"));
        std::filesystem::create_symlink("../../blobs/" + name, path("hub/snapshots/r/model.safetensors"));
        const auto model = load(client_.get(), path("hub/snapshots/r"), {});
        const bool is_hash = name == digits || name == std::string(40, 'a');
        const auto facts = attribute(part(model).name, GSHM_TENSORS_ATTRIBUTE);
        EXPECT_NE(facts.find(is_hash ? "\"blob:" + name + ":" : "\"file:"), std::string::npos) << facts;
    }
}

TEST_F(LoadTest, TheIndexOfASnapshotIsABlobToo) {
    const auto tensors = some_tensors(1);
    write_file("hub/blobs/" + std::string(64, 'a'), file_bytes(tensors));
    write_file("hub/blobs/" + std::string(40, 'b'), R"({"weight_map":{"one":"model-00001-of-00001.safetensors"}})");
    std::filesystem::create_directories(path("hub/snapshots/r"));
    std::filesystem::create_symlink("../../blobs/" + std::string(64, 'a'),
                                    path("hub/snapshots/r/model-00001-of-00001.safetensors"));
    std::filesystem::create_symlink("../../blobs/" + std::string(40, 'b'),
                                    path("hub/snapshots/r/model.safetensors.index.json"));
    EXPECT_EQ(difference(part(load(client_.get(), path("hub/snapshots/r"), {})), tensors), "");
}

TEST_F(LoadTest, FoldersAreLimitedInTheNumberOfTheirTensors) {
    std::string json = "{";
    for (int i = 0; i < 250'000; ++i)
        json += (i ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    json += "}";
    const uint64_t length = json.size();
    const auto bytes = std::string(reinterpret_cast<const char*>(&length), 8) + json;
    for (const char* name : {"a", "b", "c", "d", "e"}) write_file("many/" + std::string(name) + ".safetensors", bytes);
    Model none;
    EXPECT_EQ(load_code(client_.get(), path("many"), {}, none), -EBADMSG);
    EXPECT_NE(std::string(gshm_last_error()).find("more than 1000000 tensors"), std::string::npos) << gshm_last_error();
}

TEST_F(LoadTest, AChangedFileIsANewVersionAndHoldersKeepTheOldOne) {
    for (const char* name : {static_cast<const char*>(nullptr), "explicit"}) {
        const auto old_tensors = some_tensors(1);
        const auto new_tensors = some_tensors(50);
        const auto file = write_file("m.safetensors", file_bytes(old_tensors));
        const auto old_model = load(client_.get(), file, {.name = name});
        std::filesystem::remove(file);  // another inode, as a writer that renames makes it
        write_file("m.safetensors", file_bytes(new_tensors));
        const auto new_model = load(client_.get(), file, {.name = name});
        EXPECT_FALSE(is_shared(part(new_model)));
        EXPECT_STREQ(part(new_model).name, part(old_model).name);
        EXPECT_NE(gshm_id(part(new_model).object), gshm_id(part(old_model).object));
        EXPECT_EQ(difference(part(old_model), old_tensors), "");
        EXPECT_EQ(difference(part(new_model), new_tensors), "");
        EXPECT_TRUE(is_shared(part(load(client_.get(), file, {.name = name}))));
        // In place, with another time.
        std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + 1h);
        EXPECT_FALSE(is_shared(part(load(client_.get(), file, {.name = name}))));
    }
}

TEST_F(LoadTest, AnExplicitNameIsNeverTakenFromAnotherObject) {
    const auto file = write_file("m.safetensors", file_bytes(some_tensors(1)));
    const auto other = make("mine", 4096, "host", 1);
    Model none;
    EXPECT_EQ(load_code(client_.get(), file, {.name = "mine"}, none), -EEXIST) << gshm_last_error();
    EXPECT_TRUE(has("mine", 1));
    EXPECT_EQ(names(client_.get()), std::set<std::string>{"mine"});
    EXPECT_EQ(load_code(client_.get(), file, {.name = "../x"}, none), -EINVAL);
    EXPECT_EQ(load_code(client_.get(), file, {.name = "mine/below"}, none), -ENOTDIR) << gshm_last_error();
}

// Checkpoints and shared modules have the attribute, but no identity of a file.
TEST_F(LoadTest, TensorsThatAreInNoFileAreNeverReplaced) {
    const auto file = write_file("m.safetensors", file_bytes(some_tensors(1)));
    Object saved;
    const auto save = [&] {
        saved = make("precious", 4096, "host", 1);
        const std::string facts = R"({"format": 1, "tensors": 3, "header_bytes": 200})";
        EXPECT_EQ(gshm_set_attribute(client_.get(), "precious", GSHM_TENSORS_ATTRIBUTE, facts.data(), facts.size()), 0);
    };
    save();
    Model none;
    EXPECT_EQ(load_code(client_.get(), file, {.name = "precious"}, none), -EEXIST) << gshm_last_error();
    EXPECT_TRUE(has("precious", 1));
    ASSERT_EQ(gshm_unlink(client_.get(), "precious"), 0);
    // It appears while the file is read, in the place of nothing and of an older version.
    for (const bool has_version : {false, true}) {
        if (has_version) {
            load(client_.get(), file, {.name = "precious"});
            std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + 1h);
        }
        const auto appear = [&, is_saved = false](uint64_t done, uint64_t) mutable {
            if (done == 0 || std::exchange(is_saved, true)) return 0;
            if (has_version) EXPECT_EQ(gshm_unlink(client_.get(), "precious"), 0);
            save();
            return 0;
        };
        EXPECT_EQ(load_code(client_.get(), file, {.name = "precious", .progress = appear}, none), -EEXIST);
        EXPECT_NE(std::string(gshm_last_error()).find("not a loaded file"), std::string::npos) << gshm_last_error();
        EXPECT_TRUE(has("precious", 1));
        EXPECT_EQ(names(client_.get()), std::set<std::string>{"precious"});
        ASSERT_EQ(gshm_unlink(client_.get(), "precious"), 0);
    }
}

TEST_F(LoadTest, AnExplicitNameServesEveryDevice) {
    auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    for (const bool is_new : {true, false}) {
        for (const char* device : {"cuda:0", "host", "cuda:1"}) {
            const auto model = load(client_.get(), file, {.name = "m", .device = device});
            EXPECT_EQ(is_shared(part(model)), !is_new) << device;
            EXPECT_EQ(std::string(part(model).name),
                      device == std::string("cuda:0") ? "m" : "m@" + std::string(device));
            EXPECT_STREQ(gshm_device(part(model).object), device);
            EXPECT_EQ(difference(part(model), tensors), "");
        }
    }
    EXPECT_EQ(names(client_.get()), (std::set<std::string>{"m", "m@host", "m@cuda:1"}));
    // A new version replaces that of its device, and selections are objects of their own.
    tensors = some_tensors(50);
    write_file("m.safetensors", file_bytes(tensors));
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + 1h);
    for (const bool is_new : {true, false}) {
        for (const char* device : {"cuda:1", "cuda:0", "host"}) {
            const auto model = load(client_.get(), file, {.name = "m", .device = device});
            EXPECT_EQ(is_shared(part(model)), !is_new) << device;
            EXPECT_EQ(difference(part(model), tensors), "");
        }
    }
    EXPECT_EQ(names(client_.get()), (std::set<std::string>{"m", "m@host", "m@cuda:1"}));
    for (const char* device : {"host", "cuda:0", "host", "cuda:0"}) {
        load(client_.get(), file, {.name = "m", .device = device, .choices = {choice("one")}});
    }
    EXPECT_EQ(names(client_.get()).size(), 5u);
    // A call for several devices finds them too.
    const auto both =
        load(client_.get(), file, {.name = "m", .choices = {choice("one", "host"), choice("one", "cuda:0")}});
    ASSERT_EQ(gshm_model_count(both.get()), 2u);
    EXPECT_TRUE(is_shared(part(both, 0)));
    EXPECT_TRUE(is_shared(part(both, 1)));
    // An object of another kind is in the way of the second name.
    Model none;
    write_file("n.safetensors", file_bytes(tensors));
    load(client_.get(), path("n.safetensors"), {.name = "n"});
    const auto other = make("n@cuda:0", 4096, "host", 1);
    EXPECT_EQ(load_code(client_.get(), path("n.safetensors"), {.name = "n", .device = "cuda:0"}, none), -EEXIST);
    EXPECT_TRUE(has("n@cuda:0", 1));
}

// The second finds the name free, and taken when its bytes are read.
TEST_F(LoadTest, LoadersForTwoDevicesAtTheSameTimeKeepBoth) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    const auto other = connect();
    bool is_loaded = false;
    const auto load_other = [&](uint64_t done, uint64_t) {
        if (done == 0 || std::exchange(is_loaded, true)) return 0;
        EXPECT_STREQ(part(load(other.get(), file, {.name = "m", .device = "cuda:0"})).name, "m");
        return 0;
    };
    const auto model = load(client_.get(), file, {.name = "m", .progress = load_other});
    EXPECT_TRUE(is_loaded);
    EXPECT_STREQ(part(model).name, "m@host");
    EXPECT_EQ(difference(part(model), tensors), "");
    EXPECT_EQ(names(client_.get()), (std::set<std::string>{"m", "m@host"}));
}

TEST_F(LoadTest, ExistingOnesOnly) {
    const auto file = write_file("m.safetensors", file_bytes(some_tensors(1)));
    Model none;
    EXPECT_EQ(load_code(client_.get(), file, {.flags = GSHM_LOAD_EXISTING}, none), -ENOENT);
    EXPECT_TRUE(names(client_.get()).empty());
    load(client_.get(), file, {});
    EXPECT_TRUE(is_shared(part(load(client_.get(), file, {.flags = GSHM_LOAD_EXISTING}))));
    EXPECT_EQ(load_code(client_.get(), file, {.device = "cuda:0", .flags = GSHM_LOAD_EXISTING}, none), -ENOENT);
}

TEST_F(LoadTest, AFullDeviceLeavesNothing) {
    const auto file = write_file("m.safetensors", file_bytes({make_tensor("a", "U8", {1 << 20}, 1)}));
    const std::string large = file_bytes({{"a", "U8", {400 << 20}, std::string(400 << 20, '\0')}});
    const auto too_large = write_file("large.safetensors", large);
    Model none;
    EXPECT_EQ(load_code(client_.get(), too_large, {}, none), -ENOSPC) << gshm_last_error();
    EXPECT_NE(std::string(gshm_last_error()).find("large.safetensors"), std::string::npos) << gshm_last_error();
    EXPECT_TRUE(names(client_.get()).empty());
    EXPECT_EQ(device(client_.get(), "host").object_bytes, 0u);
    load(client_.get(), file, {});
}

TEST_F(LoadTest, AFileThatChangesMeanwhileLeavesNothing) {
    const auto tensors = large_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    Model none;
    int calls = 0;
    const auto once = [&](auto change) {
        return [&, change](uint64_t, uint64_t) {
            if (calls++ == 0) change();
            return 0;
        };
    };
    EXPECT_EQ(load_code(client_.get(), file,
                        {.progress = once([&] { std::filesystem::resize_file(file, bytes_of(tensors) / 2); })}, none),
              -ENODATA)
        << gshm_last_error();
    EXPECT_TRUE(names(client_.get()).empty());
    calls = 0;
    write_file("m.safetensors", file_bytes(tensors));
    const auto touch = [&] {
        std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + 1h);
    };
    EXPECT_EQ(load_code(client_.get(), file, {.progress = once(touch)}, none), -EBUSY) << gshm_last_error();
    EXPECT_TRUE(names(client_.get()).empty());
    EXPECT_EQ(device(client_.get(), "host").object_bytes, 0u);
    EXPECT_EQ(difference(part(load(client_.get(), file, {})), tensors), "");
}

TEST_F(LoadTest, ProgressCountsEveryByteAndStops) {
    const auto tensors = large_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    Model none;
    const auto stop = [](uint64_t done, uint64_t) { return done > 0 ? 1 : 0; };
    EXPECT_EQ(load_code(client_.get(), file, {.progress = stop}, none), -ECANCELED);
    EXPECT_TRUE(names(client_.get()).empty());
    uint64_t last = 0, total = 0;
    const auto watch = [&](uint64_t done, uint64_t all) {
        EXPECT_GE(done, last);
        last = done;
        total = all;
        return 0;
    };
    const auto model = load(client_.get(), file, {.progress = watch});
    EXPECT_EQ(last, bytes_of(tensors));
    EXPECT_EQ(total, bytes_of(tensors));
    last = 0;
    load(client_.get(), file, {.progress = watch});  // shared: done at once
    EXPECT_EQ(last, bytes_of(tensors));
    EXPECT_EQ(load_code(client_.get(), file, {.progress = [](uint64_t, uint64_t) { return 1; }}, none), -ECANCELED);
}

TEST_F(LoadTest, PathsThatAreNoNamesAreLoadedToo) {
    const auto tensors = some_tensors(1);
    const std::string odd = std::string(240, 'n') + "\xff.safetensors";
    const auto file = write_file(odd, file_bytes(tensors));
    EXPECT_EQ(difference(part(load(client_.get(), file, {})), tensors), "");
    EXPECT_TRUE(is_shared(part(load(client_.get(), file, {}))));
}

TEST_F(LoadTest, AnEmptyFileOfTensorsIsAnObject) {
    const auto file = write_file("m.safetensors", file_bytes({}, "{\"k\":\"v\"}"));
    const auto model = load(client_.get(), file, {});
    ASSERT_EQ(gshm_model_count(model.get()), 1u);
    EXPECT_EQ(gshm_tensors_count(part(model).tensors), 0u);
    EXPECT_TRUE(is_shared(part(load(client_.get(), file, {}))));
}

TEST_F(LoadTest, TheRightsOfTheObjectAreThoseOfTheFile) {
    const auto mode_of = [&](const std::string& file) {
        const auto model = load(client_.get(), file, {});
        return stat(client_.get(), part(model).name).mode & 0777;
    };
    const auto open_file = write_file("open.safetensors", file_bytes(some_tensors(1)));
    std::filesystem::permissions(open_file, std::filesystem::perms(0644));
    EXPECT_EQ(mode_of(open_file), 0444u);
    const auto own_file = write_file("own.safetensors", file_bytes(some_tensors(2)));
    std::filesystem::permissions(own_file, std::filesystem::perms(0600));
    EXPECT_EQ(mode_of(own_file), 0400u);
    const auto group_file = write_file("group.safetensors", file_bytes(some_tensors(3)));
    std::filesystem::permissions(group_file, std::filesystem::perms(0640));
    EXPECT_EQ(mode_of(group_file), 0440u);
    // A folder that others may not enter.
    const auto hidden = write_file("closed/hidden.safetensors", file_bytes(some_tensors(4)));
    std::filesystem::permissions(hidden, std::filesystem::perms(0644));
    std::filesystem::permissions(path("closed"), std::filesystem::perms(0700));
    EXPECT_EQ(mode_of(hidden), 0400u);
    const auto chosen = load(client_.get(), own_file, {.name = "chosen", .mode = 0640});
    EXPECT_EQ(stat(client_.get(), "chosen").mode & 0777, 0640u);
}

}  // namespace
}  // namespace gshm::core::test

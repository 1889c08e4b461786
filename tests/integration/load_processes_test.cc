// Several processes and users that load the same file; loaders and daemons that are killed.
#include "integration/load_fixture.h"

namespace gshm::core::test {
namespace {

class LoadProcesses : public LoadTest, public ::testing::WithParamInterface<const char*> {
protected:
    // Loads and tells the bytes read, or fails.
    int load_and_tell(Process& self, const std::string& file, const Options& options,
                      const std::vector<TestTensor>& tensors) {
        const auto client = connect(kPatience);
        Model model;
        if (load_code(client.get(), file, options, model) != 0) {
            fprintf(stderr, "load: %s\n", gshm_last_error());
            return 1;
        }
        uint64_t read = 0;
        for (size_t i = 0; i < gshm_model_count(model.get()); ++i) read += part(model, i).read_bytes;
        self.tell(read);
        return gshm_model_count(model.get()) == 1 && !difference(part(model), tensors).empty() ? 2 : 0;
    }
    // In the process: stops for ever as soon as bytes are read, before the object gets its name.
    static std::function<int(uint64_t, uint64_t)> stop_half_way(Process& self) {
        return [&self](uint64_t done, uint64_t) {
            if (done == 0) return 0;
            self.tell(done);
            while (true) pause();
        };
    }
    Options options(const char* name = nullptr) const {
        return {.name = name, .device = GetParam(), .flags = map_in_child(GetParam())};
    }

    using Started = std::unique_ptr<Process>;
    // A loader that holds the claim, and has read bytes.
    Started start_half_way(const std::string& file, const std::vector<TestTensor>& tensors) {
        auto loader = std::make_unique<Process>([&](Process& self) {
            auto half = options();
            half.progress = stop_half_way(self);
            return load_and_tell(self, file, half, tensors);
        });
        EXPECT_TRUE(loader->hear());
        return loader;
    }
    // A loader that waits for the one that holds the claim. It then tells the bytes that it has read itself.
    Started start_waiting(const std::string& file, const std::vector<TestTensor>& tensors, uid_t uid = 0) {
        auto waiter = std::make_unique<Process>(
            [&](Process& self) {
                auto waiting = options();
                int calls = 0;
                waiting.progress = [&](uint64_t done, uint64_t) {
                    if (++calls == 2) self.tell(done);  // the first call is before the look at the daemon
                    return 0;
                };
                return load_and_tell(self, file, waiting, tensors);
            },
            uid);
        EXPECT_EQ(waiter->hear(), std::optional<uint64_t>(0));
        return waiter;
    }
};

TEST_P(LoadProcesses, ARaceReadsTheBytesOnce) {
    std::vector<TestTensor> all;
    for (int i = 0; i < 4; ++i) {
        const auto tensors =
            std::vector{make_tensor("t" + std::to_string(i), "U8", {3 << 20}, static_cast<uint64_t>(i))};
        write_file("llama/" + std::to_string(i) + ".safetensors", file_bytes(tensors));
        all.push_back(tensors[0]);
    }
    for (const char* name : {static_cast<const char*>(nullptr), "models/llama"}) {
        int gate[2];
        ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
        std::vector<std::unique_ptr<Process>> processes;
        for (int i = 0; i < 6; ++i) {
            processes.push_back(std::make_unique<Process>([&](Process& self) {
                close(gate[1]);
                char none = 0;
                (void)!read(gate[0], &none, 1);  // all begin together
                return load_and_tell(self, path("llama"), options(name), all);
            }));
        }
        close(gate[0]);
        close(gate[1]);
        uint64_t read = 0;
        for (auto& process : processes) {
            read += process->hear().value_or(1);
            EXPECT_EQ(process->wait(), 0);
        }
        EXPECT_EQ(read, bytes_of(all));
        const auto model = load(client_.get(), path("llama"), {.name = name, .device = GetParam()});
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(difference(part(model, i), {all[i]}), "");
    }
    EXPECT_EQ(names(client_.get()).size(), 8u);  // and no claims
}

TEST_P(LoadProcesses, AKilledLoaderLeavesNothing) {
    const auto tensors = large_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    const auto loader = start_half_way(file, tensors);
    EXPECT_EQ(names(client_.get()).size(), 1u);
    EXPECT_NE(names(client_.get()).begin()->find(".loading-"), std::string::npos);
    loader->kill();
    EXPECT_TRUE(eventually([&] { return names(client_.get()).empty(); }));
    EXPECT_TRUE(eventually([&] { return device(client_.get(), GetParam()).object_bytes == 0; }));
    const auto model = load(client_.get(), file, {.device = GetParam()});
    EXPECT_EQ(difference(part(model), tensors), "");
}

TEST_P(LoadProcesses, TheWaitingOneTakesOver) {
    const auto tensors = large_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    const auto loader = start_half_way(file, tensors);
    const auto waiter = start_waiting(file, tensors);
    // The wait has a limit for others.
    Model none;
    EXPECT_EQ(load_code(client_.get(), file, {.device = GetParam(), .timeout_ms = 50}, none), -ETIMEDOUT);
    loader->kill();
    EXPECT_EQ(waiter->hear(), std::optional<uint64_t>(bytes_of(tensors)));
    EXPECT_EQ(waiter->wait(), 0);
    EXPECT_TRUE(is_shared(part(load(client_.get(), file, {.device = GetParam()}))));
}

TEST_P(LoadProcesses, AKilledDaemonIsOnlyAPause) {
    const auto tensors = large_tensors(1);
    for (const uint64_t when : {uint64_t{0}, uint64_t{1}, bytes_of(tensors)}) {
        const auto file = write_file("m" + std::to_string(when) + ".safetensors", file_bytes(tensors));
        bool killed = false;
        const auto kill_once = [&](uint64_t done, uint64_t) {
            if (!killed && done >= when) {
                killed = true;
                kill_it();
            }
            return 0;
        };
        const auto model = load(client_.get(), file, {.device = GetParam(), .progress = kill_once});
        ASSERT_TRUE(model);
        EXPECT_TRUE(killed);
        EXPECT_EQ(difference(part(model), tensors), "");
    }
    EXPECT_EQ(names(client_.get()).size(), 3u);
}

// More rows than the buffers hold that gather them.
TEST_P(LoadProcesses, ASliceOfManyRowsOutlivesTheDaemonToo) {
    constexpr uint64_t kRows = 20'000, kRowBytes = 6'000, kBegin = 1'001, kEnd = 5'002;
    std::string bytes;
    const std::string some = pattern(1'000'003, 1);  // no multiple of a row
    while (bytes.size() < kRows * kRowBytes) bytes += some;
    bytes.resize(kRows * kRowBytes);
    const auto file = write_file("m.safetensors", file_bytes({{"w", "U8", {kRows, kRowBytes}, bytes}}));
    std::string expected;
    for (uint64_t row = 0; row < kRows; ++row) expected += bytes.substr(row * kRowBytes + kBegin, kEnd - kBegin);
    const Options slice{.device = GetParam(), .choices = {choice("w", nullptr, 1, kBegin, kEnd)}};
    Options cut = slice;
    bool changed = false;
    cut.progress = [&](uint64_t, uint64_t) {
        if (!std::exchange(changed, true)) std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
        return 0;
    };
    Model none;
    EXPECT_EQ(load_code(client_.get(), file, cut, none), -ENODATA) << gshm_last_error();
    EXPECT_TRUE(names(client_.get()).empty());

    write_file("m.safetensors", file_bytes({{"w", "U8", {kRows, kRowBytes}, bytes}}));
    Options killing = slice;
    bool killed = false;
    killing.progress = [&](uint64_t done, uint64_t) {
        if (done > 0 && !std::exchange(killed, true)) kill_it();
        return 0;
    };
    const auto model = load(client_.get(), file, killing);
    ASSERT_TRUE(model);
    EXPECT_EQ(part(model).read_bytes, expected.size());
    EXPECT_TRUE(find(part(model), "w")->bytes == expected);
}

TEST_P(LoadProcesses, AWaitOutlivesTheDaemonToo) {
    const auto tensors = large_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    const auto loader = start_half_way(file, tensors);
    int calls = 0;
    const auto progress = [&](uint64_t, uint64_t) {
        if (++calls == 2) {
            kill_it();
            loader->kill();
        }
        return 0;
    };
    const auto model = load(client_.get(), file, {.device = GetParam(), .progress = progress});
    ASSERT_TRUE(model);
    EXPECT_EQ(difference(part(model), tensors), "");
}

INSTANTIATE_TEST_SUITE_P(Devices, LoadProcesses, ::testing::Values("host", "cuda:0"), device_of);

class LoadUsers : public LoadProcesses {
protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
        LoadProcesses::SetUp();
    }
    static constexpr uid_t kStranger = 65534, kVictim = 65533, kThird = 65532;

    // Loads the file as the user, which reads so many bytes of it.
    void expect_read(uid_t uid, const std::string& file, const std::vector<TestTensor>& tensors, uint64_t bytes) {
        Process user([&](Process& self) { return load_and_tell(self, file, options(), tensors); }, uid);
        EXPECT_EQ(user.hear(), std::optional<uint64_t>(bytes));
        EXPECT_EQ(user.wait(), 0);
    }
    void as_user(uid_t uid, const std::function<void(gshm_client*)>& body) {
        Process user(
            [&](Process&) {
                body(connect(kPatience).get());
                return HasFailure() ? 1 : 0;
            },
            uid);
        EXPECT_EQ(user.wait(), 0);
    }
    static void make_node(gshm_client* client, const std::string& name, uint32_t kind, uint32_t mode,
                          const char* target) {
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = kind;
        spec.name = name.c_str();
        spec.mode = mode;
        spec.target = target;
        spec.flags = GSHM_MAKE_KEEP;
        EXPECT_EQ(gshm_make(client, &spec), 0) << gshm_last_error();
    }
    std::vector<std::string> list_names(const std::string& folder) {
        std::vector<std::string> found;
        gshm_listing* listing = nullptr;
        EXPECT_EQ(gshm_list(client_.get(), folder.c_str(), 0, &listing), 0) << gshm_last_error();
        for (size_t i = 0; i < gshm_listing_count(listing); ++i) found.emplace_back(gshm_listing_name(listing, i));
        gshm_listing_free(listing);
        return found;
    }
    // Directories without GSHM_MAKE_KEEP end with their last entry.
    void remove_tree(const std::string& name) {
        gshm_stat_info info = GSHM_STAT_INFO_INIT;
        if (gshm_stat(client_.get(), name.c_str(), &info) == 0 && info.kind == GSHM_KIND_DIRECTORY) {
            for (const auto& below : list_names(name)) remove_tree(name + "/" + below);
        }
        (void)gshm_unlink(client_.get(), name.c_str());
    }
};

TEST_P(LoadUsers, AnotherUserSharesWhatRootHasLoaded) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    std::filesystem::permissions(file, std::filesystem::perms(0644));
    const auto model = load(client_.get(), file, {.device = GetParam()});
    Process other([&](Process& self) { return load_and_tell(self, file, options(), tensors); }, kStranger);
    EXPECT_EQ(other.hear(), std::optional<uint64_t>(0));
    EXPECT_EQ(other.wait(), 0);
    EXPECT_EQ(names(client_.get()).size(), 1u);
}

TEST_P(LoadUsers, AnotherUserWaitsForTheOwnerOfTheFile) {
    const auto tensors = large_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    std::filesystem::permissions(file, std::filesystem::perms(0644));
    Process loader([&](Process& self) {
        auto half = options();
        bool is_stopped = false;
        half.progress = [&](uint64_t done, uint64_t) {
            if (done == 0 || std::exchange(is_stopped, true)) return 0;
            self.tell(done);
            raise(SIGSTOP);
            return 0;
        };
        return load_and_tell(self, file, half, tensors);
    });
    ASSERT_TRUE(loader.hear());
    const auto other = start_waiting(file, tensors, kStranger);
    loader.go_on();
    EXPECT_EQ(other->hear(), std::optional<uint64_t>(0));
    EXPECT_EQ(other->wait(), 0);
}

TEST_P(LoadUsers, AStrangersObjectUnderTheDerivedNameIsNotTrusted) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    std::filesystem::permissions(file, std::filesystem::perms(0644));
    // With the attribute and the identity of the real one, in the place of root's tree.
    const std::string name = "loaded-0" + file + "@" + GetParam();
    Process stranger([&](Process& self) { return load_and_tell(self, file, options(name.c_str()), tensors); },
                     kStranger);
    EXPECT_EQ(stranger.hear(), std::optional<uint64_t>(bytes_of(tensors)));
    ASSERT_EQ(stranger.wait(), 0);
    EXPECT_EQ(stat(client_.get(), name.c_str()).uid, kStranger);
    // A user who looks into root's tree.
    expect_read(kVictim, file, tensors, bytes_of(tensors));
    // Root's tree has another name now, which others find.
    const auto model = load(client_.get(), file, {.device = GetParam()});
    EXPECT_EQ(part(model).read_bytes, bytes_of(tensors));
    EXPECT_TRUE(std::string(part(model).name).starts_with("loaded-0.")) << part(model).name;
    EXPECT_EQ(stat(client_.get(), part(model).name).uid, 0u);
    EXPECT_TRUE(is_shared(part(load(client_.get(), file, {.device = GetParam()}))));
    expect_read(kThird, file, tensors, 0);
    // An explicit name is trusted.
    EXPECT_FALSE(is_shared(part(load(client_.get(), file, {.name = "shared", .device = GetParam()}))));
    Process user([&](Process& self) { return load_and_tell(self, file, options("shared"), tensors); }, kVictim);
    EXPECT_EQ(user.hear(), std::optional<uint64_t>(0));
    EXPECT_EQ(user.wait(), 0);
}

// Whatever another user puts there first.
TEST_P(LoadUsers, ATakenNameOfATreeBlocksNobody) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    std::filesystem::permissions(file, std::filesystem::perms(0644));
    const std::string usual = "loaded-65533";
    const auto taken = [&](uint32_t kind, uint32_t mode, const char* target) {
        return [=, this](gshm_client* client) { make_node(client, usual, kind, mode, target); };
    };
    const auto object = [&](gshm_client* client) { create(client, usual.c_str(), 64, "host", GSHM_CREATE_KEEP); };
    const std::pair<const char*, std::function<void(gshm_client*)>> attacks[] = {
        {"a directory that is closed", taken(GSHM_KIND_DIRECTORY, 0700, nullptr)},
        {"a directory that is open to all", taken(GSHM_KIND_DIRECTORY, 0777, nullptr)},
        {"a link to itself", taken(GSHM_KIND_SYMLINK, 0, "loaded-65533")},
        {"a link to a directory of the victim", taken(GSHM_KIND_SYMLINK, 0, "victims")},
        {"a link to nothing", taken(GSHM_KIND_SYMLINK, 0, "nowhere")},
        {"an object", object},
        {"an object, and names like those of trees",
         [&](gshm_client* client) {
             object(client);
             make_node(client, usual + ".", GSHM_KIND_DIRECTORY, 0777, nullptr);
             make_node(client, usual + ".0", GSHM_KIND_SYMLINK, 0, "victims");
         }},
    };
    as_user(kVictim, [&](gshm_client* client) { make_node(client, "victims", GSHM_KIND_DIRECTORY, 0755, nullptr); });
    for (const auto& [what, attack] : attacks) {
        SCOPED_TRACE(what);
        as_user(kStranger, attack);
        expect_read(kVictim, file, tensors, bytes_of(tensors));
        expect_read(kVictim, file, tensors, 0);  // the same tree is found again
        EXPECT_EQ(list_names("victims").size(), 0u);
        for (const auto& name : list_names("")) {
            if (name.starts_with(usual)) remove_tree(name);
        }
    }
    expect_read(kVictim, file, tensors, bytes_of(tensors));
    EXPECT_EQ(names(client_.get()), std::set<std::string>{usual + file + "@" + GetParam()});
    // A link of the user.
    remove_tree(usual);
    as_user(kVictim, taken(GSHM_KIND_SYMLINK, 0, "nowhere"));
    expect_read(kVictim, file, tensors, bytes_of(tensors));
    expect_read(kVictim, file, tensors, 0);
    EXPECT_EQ(list_names("").size(), 3u);  // a tree, the link, and "victims"
    for (const auto& name : list_names("")) {
        if (name.starts_with(usual)) remove_tree(name);
    }
    expect_read(kVictim, file, tensors, bytes_of(tensors));
    // A tree that others may write in, too.
    gshm_changes changes = GSHM_CHANGES_INIT;
    changes.what = GSHM_CHANGE_MODE;
    changes.mode = 0777;
    ASSERT_EQ(gshm_change(client_.get(), usual.c_str(), &changes), 0) << gshm_last_error();
    expect_read(kVictim, file, tensors, bytes_of(tensors));
}

TEST_P(LoadUsers, UsersHaveTreesOfTheirOwn) {
    const auto tensors = some_tensors(1);
    const auto file = write_file("m.safetensors", file_bytes(tensors));
    std::filesystem::permissions(file, std::filesystem::perms(0644));
    for (const uid_t uid : {kStranger, kVictim}) {
        Process user([&](Process& self) { return load_and_tell(self, file, options(), tensors); }, uid);
        EXPECT_EQ(user.hear(), std::optional<uint64_t>(bytes_of(tensors)));
        EXPECT_EQ(user.wait(), 0);
    }
    EXPECT_EQ(names(client_.get()), (std::set<std::string>{"loaded-65533" + file + "@" + GetParam(),
                                                           "loaded-65534" + file + "@" + GetParam()}));
}

INSTANTIATE_TEST_SUITE_P(Devices, LoadUsers, ::testing::Values("host", "cuda:0"), device_of);

}  // namespace
}  // namespace gshm::core::test

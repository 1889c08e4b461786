// Errors told a user of what other users hide. An id told whether an object exists, and the message had its path. A name
// under a directory that may not be searched told by its device whether it exists. Messages about an object that was
// reached by one name had its other names.
#include <map>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "integration/library_fixture.h"
#include "mount/mount_fixture.h"
#include "wire/message.h"
#include "wire/version.h"

namespace gshm::core::test {
namespace {

constexpr uid_t kStranger = MountFixture::kNobody;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, what.size(), by);
    return text;
}

std::string without_id(const std::string& text, uint64_t id) {
    return replaced(text, "object " + std::to_string(id), "object ID");
}

class Strangers : public LibraryTest {
protected:
    // "secret" is closed to the stranger.
    static constexpr const char* kThere = "secret/xylem";
    static constexpr const char* kNotThere = "secret/flora";

    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "not root: the test needs a second user";
        start_all();
        make_directory("secret", 0700);
        hidden_ = create(client_.get(), kThere, 1000, "host", GSHM_KEEP, 0666);
    }
    void make_directory(const char* name, uint32_t mode, const char* device = nullptr) {
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = GSHM_KIND_DIRECTORY;
        spec.name = name;
        spec.mode = mode;
        spec.device = device;
        ASSERT_EQ(gshm_make(client_.get(), &spec), 0) << gshm_last_error();
    }
    void make_hard_link(const char* name, const char* new_name) {
        ASSERT_EQ(gshm_link(client_.get(), name, new_name), 0) << gshm_last_error();
    }
    // Runs it as the stranger, with a client. Returns what it returns: "" if all is well.
    std::string as_stranger(const std::function<std::string(gshm_client*)>& body) {
        return MountFixture::run_as(kStranger, [&]() -> std::string {
            const auto client = connect();
            return client ? body(client.get()) : "cannot connect";
        });
    }
    static std::string said(int status) {
        return std::to_string(status) + ": " + (status < 0 ? gshm_last_error() : "");
    }

    Object hidden_;
};

using NameCall = std::function<int(gshm_client*, const char* name)>;

// Every call that takes a name.
std::map<std::string, NameCall> name_calls() {
    static gshm_object* object;
    static gshm_stat_info info;
    static char bytes[100];
    static size_t length;
    info.struct_size = sizeof info;
    auto open_with = [](uint32_t flags) {
        return [flags](gshm_client* client, const char* name) { return gshm_open(client, name, flags, &object); };
    };
    auto make = [](uint32_t kind) {
        return [kind](gshm_client* client, const char* name) {
            gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
            spec.kind = kind;
            spec.name = name;
            spec.target = kind == GSHM_KIND_SYMLINK ? "x" : nullptr;
            return gshm_make(client, &spec);
        };
    };
    auto wait = [](int condition) {
        return
            [condition](gshm_client* client, const char* name) { return gshm_wait(client, name, condition, 0, &info); };
    };
    auto create = [](uint64_t bytes_wanted, uint32_t flags) {
        return [=](gshm_client* client, const char* name) {
            gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
            spec.name = name;
            spec.size_bytes = bytes_wanted;
            spec.flags = flags;
            return gshm_create(client, &spec, &object);
        };
    };
    constexpr uint64_t kLarge = uint64_t{300} << 20;  // fits no `host` device of these tests
    return {
        {"open", open_with(GSHM_NO_MAP)},
        {"open for writing", open_with(GSHM_WRITE | GSHM_NO_MAP)},
        {"open a sealed one", open_with(GSHM_SEALED_ONLY | GSHM_NO_MAP)},
        {"create", create(1000, GSHM_NO_MAP)},
        {"create without a name", create(1000, GSHM_UNNAMED | GSHM_NO_MAP)},
        {"create a large one", create(kLarge, GSHM_NO_MAP)},
        {"stat", [](auto* client, auto* name) { return gshm_stat(client, name, &info); }},
        {"list",
         [](auto* client, auto* name) {
             gshm_listing* listing = nullptr;
             return gshm_list(client, name, 0, &listing);
         }},
        {"seal", [](auto* client, auto* name) { return gshm_seal_name(client, name); }},
        {"unlink", [](auto* client, auto* name) { return gshm_unlink(client, name); }},
        {"rename from", [](auto* client, auto* name) { return gshm_rename(client, name, "mine2", 0); }},
        {"rename to", [](auto* client, auto* name) { return gshm_rename(client, "mine", name, 0); }},
        {"replace", [](auto* client, auto* name) { return gshm_rename(client, "mine", name, GSHM_REPLACE); }},
        {"move", [](auto* client, auto* name) { return gshm_move(client, name, "cuda:0", 0); }},
        {"holders",
         [](auto* client, auto* name) {
             gshm_holder holder;
             holder.struct_size = sizeof holder;
             return gshm_holders(client, name, &holder, 1, &length);
         }},
        {"make a directory", make(GSHM_KIND_DIRECTORY)},
        {"make a link", make(GSHM_KIND_SYMLINK)},
        {"read a link", [](auto* client, auto* name) { return gshm_read_link(client, name, bytes, 100, &length); }},
        {"link from", [](auto* client, auto* name) { return gshm_link(client, name, "mine2"); }},
        {"link to", [](auto* client, auto* name) { return gshm_link(client, "mine", name); }},
        {"change",
         [](auto* client, auto* name) {
             gshm_changes changes = GSHM_CHANGES_INIT;
             changes.what = GSHM_CHANGE_MODE;
             return gshm_change(client, name, &changes);
         }},
        {"wait", wait(GSHM_WAIT_EXISTS)},
        {"wait for the seal", wait(GSHM_WAIT_SEALED)},
        {"wait for the end", wait(GSHM_WAIT_GONE)},
        {"set an attribute", [](auto* client, auto* name) { return gshm_set_attribute(client, name, "k", "v", 1); }},
        {"get an attribute",
         [](auto* client, auto* name) { return gshm_get_attribute(client, name, "k", bytes, 100, &length); }},
        {"remove an attribute", [](auto* client, auto* name) { return gshm_remove_attribute(client, name, "k"); }},
        {"list attributes",
         [](auto* client, auto* name) { return gshm_list_attributes(client, name, bytes, 100, &length); }},
        {"get a file",
         [](auto* client, auto* name) { return gshm_get_file(client, name, "/dev/null", nullptr, nullptr); }},
    };
}

TEST_F(Strangers, NamesUnderAClosedDirectoryTellNothing) {
    make_directory("secret/directory", 0777, "cuda:0");
    auto inside = create(client_.get(), "secret/directory/x", 1000, "host", GSHM_KEEP, 0666);
    const std::pair<std::string, std::string> pairs[] = {{kThere, kNotThere},
                                                         {"secret/directory/x", "secret/nothing/x"}};
    const auto wrong = as_stranger([&](gshm_client* client) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = "mine";
        spec.size_bytes = 10;
        gshm_object* mine = nullptr;
        if (gshm_create(client, &spec, &mine) != 0) return said(-1);
        std::string text;
        for (const auto& [there, not_there] : pairs) {
            for (const auto& [call, run] : name_calls()) {
                const auto first = replaced(said(run(client, there.c_str())), there, "NAME");
                const auto second = replaced(said(run(client, not_there.c_str())), not_there, "NAME");
                if (first != second) text += call + " tells the two apart: " + first + " | " + second + "\n";
                if (!first.starts_with("-13:") && call != "create a large one") text += call + ": " + first + "\n";
            }
        }
        return text;
    });
    EXPECT_EQ(wrong, "");
}

// A listing has the properties of all entries, their ids among them.
TEST_F(Strangers, AListingNeedsTheRightToSearch) {
    make_directory("readable", 0744);
    auto inside = create(client_.get(), "readable/x", 1000, "host", GSHM_KEEP, 0600);
    const auto heard = as_stranger([](gshm_client* client) {
        gshm_listing* listing = nullptr;
        return said(gshm_list(client, "readable", 0, &listing));
    });
    EXPECT_TRUE(heard.starts_with("-13: ")) << heard;
}

TEST_F(Strangers, CommandsTellNothingEither) {
    const std::vector<std::vector<std::string>> commands = {
        {"stat", "NAME"},
        {"--json", "stat", "NAME"},
        {"cat", "NAME"},
        {"ls", "NAME"},
        {"holders", "NAME"},
        {"rm", "NAME"},
        {"seal", "NAME"},
        {"mv", "NAME", "other"},
        {"attr", "NAME"},
        {"attr", "NAME", "k"},
        {"attr", "NAME", "k", "v"},
        {"attr", "-d", "NAME", "k"},
        {"get", "NAME", "-"},
        {"wait", "NAME", "--timeout", "0"},
        {"create", "NAME", "--size", "1000"},
        {"write", "NAME"},
    };
    for (const auto& command : commands) {
        auto run = [&](const std::string& name) {
            std::vector<std::string> argv = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
            for (const auto& word : cli_argv(command)) argv.push_back(word == "NAME" ? name : word);
            ChildProcess child;
            EXPECT_TRUE(child.spawn(argv));
            const auto result = child.finish();
            return replaced(std::to_string(result.exit_code) + "\n" + result.out + result.err, name, "NAME");
        };
        const auto there = run(kThere);
        EXPECT_EQ(there, run(kNotThere)) << command[0];
        EXPECT_NE(there.find("permission denied: search"), there.npos) << command[0] << ": " << there;
    }
}

// ---- ids ----

class RawClient {
public:
    explicit RawClient(const std::string& path) : socket_(std::move(*wire::connect_to(path))) {
        (void)ask(wire::RequestBody::Hello, [](auto& out) {
            return wire::CreateHello(out, wire::kProtocolHighest, out.CreateString("test")).Union();
        });
    }
    using Build = std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>;
    // The error and the message of the reply.
    std::string ask(wire::RequestBody kind, const Build& build) {
        flatbuffers::FlatBufferBuilder out;
        const auto body = build(out);
        if (!wire::send_packet(socket_.get(), wire::finish_request(out, ++id_, kind, body), {}, true))
            return "not sent";
        std::vector<uint8_t> buffer(limits::kMessageBytes);
        const auto received = wire::receive_packet(socket_.get(), buffer, true);
        if (!received || received->end) return "the end";
        const auto reply = wire::decode_reply({buffer.data(), received->bytes});
        if (!reply) return "no reply";
        return std::to_string((*reply)->error()) + ": " + std::string(wire::view((*reply)->message()));
    }

private:
    UniqueFd socket_;
    uint64_t id_ = 0;
};

// Every request that takes an id and is answered.
std::map<std::string, std::function<std::string(RawClient&, uint64_t id)>> id_requests() {
    using wire::RequestBody;
    using Out = flatbuffers::FlatBufferBuilder;
    auto open = [](bool write, bool sealed_only, bool map) {
        return [=](RawClient& client, uint64_t id) {
            return client.ask(RequestBody::OpenObjects, [=](Out& out) {
                const auto ids = out.CreateVector(std::vector<uint64_t>{id});
                return wire::CreateOpenObjects(out, 0, ids, write, sealed_only, map).Union();
            });
        };
    };
    auto copy = [](bool into) {
        return [=](RawClient& client, uint64_t id) {
            return client.ask(RequestBody::Copy,
                              [=](Out& out) { return wire::CreateCopy(out, id, 0, 1, into).Union(); });
        };
    };
    auto fence = [](bool write) {
        return [=](RawClient& client, uint64_t id) {
            return client.ask(RequestBody::OpenFence,
                              [=](Out& out) { return wire::CreateOpenFence(out, id, write).Union(); });
        };
    };
    return {
        {"open", open(false, false, true)},
        {"open without a mapping", open(false, false, false)},
        {"open for writing", open(true, false, false)},
        {"open a sealed one", open(false, true, false)},
        {"stat",
         [](RawClient& client, uint64_t id) {
             return client.ask(RequestBody::Stat, [=](Out& out) {
                 return wire::CreateStat(out, 0, out.CreateVector(std::vector<uint64_t>{id})).Union();
             });
         }},
        {"seal",
         [](RawClient& client, uint64_t id) {
             return client.ask(RequestBody::Seal, [=](Out& out) {
                 return wire::CreateSeal(out, 0, out.CreateVector(std::vector<uint64_t>{id})).Union();
             });
         }},
        {"replace",
         [](RawClient& client, uint64_t id) {
             return client.ask(RequestBody::Replace, [=](Out& out) {
                 return wire::CreateReplace(out, id, out.CreateString("mine")).Union();
             });
         }},
        {"give a name",
         [](RawClient& client, uint64_t id) {
             return client.ask(RequestBody::GiveName, [=](Out& out) {
                 return wire::CreateGiveName(out, id, out.CreateString("mine")).Union();
             });
         }},
        {"copy out", copy(false)},
        {"copy in", copy(true)},
        {"fill",
         [](RawClient& client, uint64_t id) {
             return client.ask(RequestBody::Fill, [=](Out& out) { return wire::CreateFill(out, id, 0, 1, 1).Union(); });
         }},
        {"export",
         [](RawClient& client, uint64_t id) {
             return client.ask(RequestBody::Export, [=](Out& out) { return wire::CreateExport(out, id, 1).Union(); });
         }},
        {"open a fence", fence(false)},
        {"publish a fence", fence(true)},
    };
}

TEST_F(Strangers, IdsTellNothing) {
    make_directory("open", 0711);
    auto unreadable = create(client_.get(), "open/unreadable", 1000, "host", GSHM_KEEP, 0622);
    auto draft = create(client_.get(), "open/draft", 1000, "host", GSHM_UNNAMED, 0666);
    auto unlinked = create(client_.get(), "open/unlinked", 1000, "host", GSHM_KEEP, 0666);
    ASSERT_EQ(gshm_unlink(client_.get(), "open/unlinked"), 0);
    const std::map<std::string, uint64_t> ids = {
        {"under a closed directory", gshm_id(hidden_.get())}, {"unreadable", gshm_id(unreadable.get())},
        {"without a name yet", gshm_id(draft.get())},         {"unlinked", gshm_id(unlinked.get())},
        {"a directory", stat(client_.get(), "open").id},
    };
    const uint64_t missing = 1'000'000;
    const auto wrong = as_stranger([&](gshm_client* client) {
        std::string text;
        auto differ = [&](const std::string& what, const std::string& first, const std::string& second) {
            if (first != second) text += what + ": " + first + " | " + second + "\n";
        };
        RawClient raw(socket_path());
        for (const auto& [what, id] : ids) {
            for (const auto& [request, run] : id_requests()) {
                differ(request + ", " + what, without_id(run(raw, id), id), without_id(run(raw, missing), missing));
            }
            gshm_object* objects[2] = {};
            auto open = [&](uint64_t which, uint32_t flags) {
                return without_id(said(gshm_open_id(client, which, flags, objects)), which);
            };
            for (uint32_t flags : {0u, uint32_t{GSHM_NO_MAP}, uint32_t{GSHM_WRITE}, uint32_t{GSHM_SEALED_ONLY}}) {
                differ("gshm_open_id, " + what, open(id, flags), open(missing, flags));
            }
            const uint64_t both[] = {id, missing};
            int status[2] = {};
            gshm_open_ids(client, both, 2, GSHM_NO_MAP, objects, status);
            differ("gshm_open_ids, " + what, std::to_string(status[0]), std::to_string(-ENOENT));
            differ("gshm_open_ids, a missing one", std::to_string(status[1]), std::to_string(-ENOENT));
        }
        return text;
    });
    EXPECT_EQ(wrong, "");
}

TEST_F(Strangers, AnIdOpensWhatOneOfItsNamesOpens) {
    make_directory("open", 0711);
    make_hard_link(kThere, "open/second");
    const uint64_t id = gshm_id(hidden_.get());
    auto open = [&](gshm_client* client) {
        gshm_object* object = nullptr;
        return said(gshm_open_id(client, id, GSHM_WRITE | GSHM_NO_MAP, &object));
    };
    EXPECT_EQ(as_stranger(open), "0: ");
    ASSERT_EQ(gshm_unlink(client_.get(), "open/second"), 0);
    EXPECT_TRUE(as_stranger(open).starts_with("-2: ")) << as_stranger(open);
    gshm_object* object = nullptr;
    EXPECT_EQ(gshm_open_id(client_.get(), id, GSHM_NO_MAP, &object), 0) << "root: " << gshm_last_error();
    gshm_close(object);
}

// ---- the other names of an object ----

TEST_F(Strangers, MessagesHaveTheNameOfTheRequest) {
    make_directory("open", 0711);
    make_directory("tmp", 01777);
    make_hard_link(kThere, "open/second");
    auto readable = create(client_.get(), "secret/readable", 1000, "host", GSHM_KEEP, 0644);
    make_hard_link("secret/readable", "open/readable");
    make_hard_link("secret/readable", "tmp/readable");
    // Shares an extent with `readable`, whose rights then change.
    auto neighbour = create(client_.get(), "secret/neighbour", 1000, "host", GSHM_KEEP, 0644);
    gshm_changes changes = GSHM_CHANGES_INIT;
    changes.what = GSHM_CHANGE_MODE;
    changes.mode = 0600;
    ASSERT_EQ(gshm_change(client_.get(), "secret/neighbour", &changes), 0);
    const uint64_t id = gshm_id(readable.get());
    const uint64_t second = gshm_id(hidden_.get());
    const auto heard = as_stranger([&](gshm_client* client) {
        gshm_object* object = nullptr;
        std::string text;
        auto add = [&](int status) { text += said(status) + "\n"; };
        add(gshm_open(client, "open/readable", GSHM_WRITE, &object));
        add(gshm_open_id(client, id, GSHM_WRITE, &object));
        add(gshm_open(client, "open/second", GSHM_SEALED_ONLY, &object));
        add(gshm_open_id(client, second, GSHM_SEALED_ONLY, &object));
        add(gshm_open(client, "open/second/below", 0, &object));
        add(gshm_open(client, "open/readable", 0, &object));  // its extent is closed
        add(gshm_unlink(client, "tmp/readable"));
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        spec.name = "open/second/below";
        spec.size_bytes = 10;
        add(gshm_create(client, &spec, &object));
        return text;
    });
    EXPECT_EQ(std::ranges::count(heard, '\n'), 8) << heard;
    EXPECT_EQ(("\n" + heard).find("\n0: "), heard.npos) << heard;
    EXPECT_EQ(heard.find("secret"), heard.npos) << heard;
    EXPECT_NE(heard.find("\"open/readable\""), heard.npos) << heard;
    EXPECT_NE(heard.find("\"tmp/readable\""), heard.npos) << heard;
}

// It opens objects by their ids, and must not take what it may not read for removed.
TEST_F(Strangers, ASnapshotSaysWhatItMayNotRead) {
    auto unreadable = create(client_.get(), "unreadable", 1000, "host", GSHM_KEEP, 0600);
    const std::string folder = scratch() + "/snapshot";
    std::filesystem::create_directory(folder);
    ASSERT_EQ(::chown(folder.c_str(), kStranger, kStranger), 0);
    std::vector<std::string> argv = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    for (const auto& word : cli_argv({"snapshot", folder, "unreadable"})) argv.push_back(word);
    ChildProcess child;
    ASSERT_TRUE(child.spawn(argv));
    const auto result = child.finish();
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find("permission denied: read \"unreadable\""), result.err.npos) << result.err;
    EXPECT_EQ(result.err.find("removed"), result.err.npos) << result.err;
}

}  // namespace
}  // namespace gshm::core::test

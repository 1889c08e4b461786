// Requests of a library client while calls of gshmd fail.
#include <unistd.h>

#include "faults/faults_fixture.h"

namespace gshm::core::test {
namespace {

class FaultsLibrary : public FaultTest, public ::testing::WithParamInterface<std::string> {
protected:
    const std::string& device() const { return GetParam(); }

    // The expected state of a name, checked without failures: acknowledged changes were made, and no others.
    struct Claim {
        std::string name;
        Outcome there;
        std::string bytes;  // "": not checked
    };
    std::vector<Claim> claims_;

    void check_claims() {
        auto client = connect();
        for (const auto& claim : claims_) {
            if (claim.there == Outcome::unknown) continue;
            EXPECT_EQ(exists(client.get(), claim.name), claim.there == Outcome::done) << claim.name;
            if (claim.there == Outcome::done && !claim.bytes.empty()) {
                EXPECT_EQ(check_bytes(client.get(), claim.name, claim.bytes), "");
            }
        }
        claims_.clear();
    }
    void run(const std::function<void(gshm_client*)>& body, size_t most) {
        auto sweep_of = [&](Class kind, uint64_t count) {
            if (HasFailure()) return;
            sweep({.kind = kind,
                   .body =
                       [&] {
                           claims_.clear();
                           if (auto client = connect()) body(client.get());
                       },
                   .clean =
                       [&] {
                           check_claims();
                           remove_all("tried");
                       },
                   .count = count,
                   .most = most});
        };
        start_all();
        sweep_of(Class::system, 1);
        sweep_of(Class::interrupted, 1);
        sweep_of(Class::sqlite, 1);
        sweep_of(Class::sqlite, kAll);
        sweep_of(Class::catalog, 1);
        sweep_of(Class::catalog, kAll);
        sweep_of(Class::device, 1);
        sweep_of(Class::device, kAll);
        if (!HasFailure()) check_restart();
    }
    // With GSHM_KEEP, since a failure may end the session.
    void make(gshm_client* client, const std::string& name, size_t bytes, uint32_t flags) {
        Object object;
        auto made = outcome(create(client, name, bytes, device(), flags | GSHM_KEEP, &object));
        Claim claim{name, made, {}};
        if (object) {
            auto wanted = pattern(name, bytes);
            if (outcome(gshm_copy_in(object.get(), 0, wanted.data(), bytes)) == Outcome::done) claim.bytes = wanted;
            std::string there(bytes, '\0');
            if (!claim.bytes.empty() && gshm_copy_out(object.get(), 0, there.data(), bytes) == 0) {
                EXPECT_EQ(there, wanted);
            }
        }
        claims_.push_back(claim);
    }
};

TEST_P(FaultsLibrary, Create) {
    run(
        [&](gshm_client* client) {
            make(client, "tried/small", 500, GSHM_NO_MAP);
            make(client, "tried/large", 3'000'000, GSHM_NO_MAP);
            make(client, "tried/mapped", 100'000, GSHM_DEDICATED);
            gshm_create_spec specs[8];
            std::string names[8];
            for (int i = 0; i < 8; ++i) {
                specs[i] = GSHM_CREATE_SPEC_INIT;
                names[i] = "tried/batch" + std::to_string(i);
                specs[i].name = names[i].c_str();
                specs[i].size_bytes = 4000;
                specs[i].device = device().c_str();
                specs[i].flags = GSHM_KEEP | (i % 2 == 0 ? GSHM_DEDICATED : 0);
            }
            gshm_object* objects[8] = {};
            int status[8] = {};
            outcome(gshm_create_batch(client, specs, 8, objects, status));
            for (int i = 0; i < 8; ++i) {
                if (objects[i] != nullptr) claims_.push_back({names[i], Outcome::done, {}});
            }
            gshm_close_batch(objects, 8);
        },
        14);
}

TEST_P(FaultsLibrary, Names) {
    run(
        [&](gshm_client* client) {
            make(client, "tried/a", 600, GSHM_NO_MAP);
            make(client, "tried/b", 700, GSHM_NO_MAP | GSHM_DEDICATED);
            std::vector<Claim> made;
            made.swap(claims_);
            bool both = made[0].there == Outcome::done && made[1].there == Outcome::done;
            if (!both) return;
            outcome(gshm_seal_name(client, "tried/a"));
            outcome(gshm_set_attribute(client, "tried/a", "user.x", "value", 5));
            char value[16];
            size_t bytes = 0;
            if (gshm_get_attribute(client, "tried/a", "user.x", value, sizeof value, &bytes) == 0) {
                EXPECT_EQ(std::string(value, bytes), "value");
            }
            outcome(gshm_remove_attribute(client, "tried/a", "user.x"));
            auto renamed = outcome(gshm_rename(client, "tried/a", "tried/b", GSHM_REPLACE));
            if (renamed == Outcome::done) {
                claims_.push_back({"tried/a", Outcome::undone, {}});
                claims_.push_back({"tried/b", Outcome::done, made[0].bytes});
            } else if (renamed == Outcome::undone) {
                claims_.push_back(made[0]);
                claims_.push_back(made[1]);
            }
            make(client, "tried/c", 800, GSHM_NO_MAP);
            auto unlinked = outcome(gshm_unlink(client, "tried/c"));
            if (claims_.back().there != Outcome::done) return;
            if (unlinked == Outcome::done) claims_.back() = {"tried/c", Outcome::undone, {}};
            if (unlinked == Outcome::unknown) claims_.back().there = Outcome::unknown;
        },
        14);
}

TEST_P(FaultsLibrary, Data) {
    run(
        [&](gshm_client* client) {
            Object object;
            outcome(create(client, "tried/data", 200'000, device(), GSHM_KEEP | GSHM_NO_MAP, &object));
            if (!object) return;
            outcome(gshm_fill(object.get(), 0, 200'000, 'x'));
            std::string bytes(150'000, '\0');
            if (outcome(gshm_copy_out(object.get(), 10, bytes.data(), bytes.size())) == Outcome::done) {
                EXPECT_TRUE(bytes == std::string(150'000, 'x') || bytes == std::string(150'000, '\0'));
            }
            gshm_handle_info info = {};
            info.struct_size = sizeof info;
            int fd = -1;
            if (outcome(gshm_export_fd(object.get(), &fd, &info)) == Outcome::done) close(fd);
            if (device() != "host") {
                uint8_t handle[GSHM_FABRIC_HANDLE_BYTES];
                outcome(gshm_export_fabric(object.get(), handle, &info));
                if (outcome(gshm_export_dmabuf(object.get(), &fd, &info)) == Outcome::done) close(fd);
            }
            for (uint32_t flags : {0u, uint32_t{GSHM_WRITE}}) {
                gshm_object* again = nullptr;
                outcome(gshm_open(client, "tried/data", flags, &again));
                gshm_close(again);
            }
        },
        14);
}

INSTANTIATE_TEST_SUITE_P(Devices, FaultsLibrary, ::testing::Values("host", "cuda:0"),
                         [](const auto& parameter) { return parameter.param == "host" ? "host" : "cuda"; });

}  // namespace
}  // namespace gshm::core::test

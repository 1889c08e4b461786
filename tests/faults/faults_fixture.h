// A gshmd with injected failures of its calls, and the invariants that hold under any failure.
//
//   sweep({.kind = Class::system, .body = [&] { ... }, .clean = [&] { ... }});
//
// runs the body without a failure to count its calls, then once for each of them with that call failing. The body may
// only expect results that hold under any failure. `clean` runs without failures and removes the objects of the body.
// Afterwards the daemon must be the same process, serve every device, have all earlier objects byte for byte, and no
// more objects, memory, descriptors and mappings than at first.
//
// GSHM_FAULTS_ALL=1: every call of every sweep. Otherwise a part of a long one, from a random call on
// (GSHM_FAULTS_SEED).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "faults/control.h"
#include "gshm/gshm.h"
#include "mount/mount_fixture.h"

namespace gshm::core::test {

using faults::Class;

struct Closer {
    void operator()(gshm_client* client) const { gshm_disconnect(client); }
    void operator()(gshm_object* object) const { gshm_close(object); }
    void operator()(gshm_listing* listing) const { gshm_listing_free(listing); }
};
using Client = std::unique_ptr<gshm_client, Closer>;
using Object = std::unique_ptr<gshm_object, Closer>;
using Listing = std::unique_ptr<gshm_listing, Closer>;

std::string name_of(Class kind);

// The possible outcomes of a failed call.
enum class Outcome { done, undone, unknown };

class FaultTest : public ::testing::Test, protected MountFixture {
protected:
    struct Sweep {
        Class kind;
        std::function<void()> body;
        std::function<void()> clean = [] {};
        uint64_t count = 1;  // number of consecutive calls that fail; kAll: all until the end of the body
        size_t most = 60;    // maximum number of runs, unless GSHM_FAULTS_ALL is set
        std::function<void()> after = [] {};  // a further check, after `clean`
    };
    static constexpr uint64_t kAll = UINT64_MAX;

    FaultTest();
    ~FaultTest() override;

    // Starts gshmd with two devices, "host" and "cuda:0", and makes the kept objects.
    void start_all(const std::vector<std::string>& further = {});
    bool start_again(const std::vector<std::string>& further = {});
    std::vector<std::string> environment() const;

    void arm(Class kind, uint64_t first, uint64_t count);
    // Whether a call has failed since arm(); *ret_seen: the number of counted calls.
    bool disarm(uint64_t* ret_seen = nullptr);
    std::string last_failed() const { return control_->last; }

    void sweep(const Sweep& sweep);
    // Chooses the calls that fail, out of `calls`.
    static std::vector<uint64_t> choose(uint64_t calls, size_t most);

    // ---- as a client; null if the call failed, which is an error only without injected failures ----
    Client connect();
    // Checks that the error is a valid one. Returns its meaning for the requested change.
    static Outcome outcome(int code);
    static int create(gshm_client* client, const std::string& name, uint64_t bytes, const std::string& device,
                      uint32_t flags, Object* ret_object);
    static std::string pattern(const std::string& name, size_t bytes);
    // "" if the object has these bytes, otherwise the difference.
    static std::string check_bytes(gshm_client* client, const std::string& name, const std::string& bytes);
    static bool exists(gshm_client* client, const std::string& name);
    // Removes all names in the folder.
    void remove_all(const std::string& folder);

    // ---- invariants ----
    void check_alive();
    void check_kept();
    void check_serves();
    struct Measure {
        uint64_t objects = 0;
        uint64_t extents = 0;
        uint64_t sessions = 0;
        std::vector<uint64_t> used_bytes;
        size_t descriptors = 0;
        size_t mappings = 0;  // shared ones
        bool operator==(const Measure&) const = default;
    };
    // Measured after all pending frees are complete, including those of empty slabs.
    Measure measure();
    // Includes zombies.
    size_t children_of_daemon(const std::string& program) const;
    // Measured when the values do not change any more.
    Measure settled();
    void check_no_more_than(const Measure& before);
    // Kills and restarts gshmd: all objects must be there.
    void check_restart(const std::vector<std::string>& further = {});

    static const std::vector<std::string> kDevices;

private:
    void keep_objects();

    faults::Control* control_ = nullptr;
    size_t makers_ = 0;  // number of gshm-maker processes without failures
};

}  // namespace gshm::core::test

#include "faults/faults_fixture.h"

#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sys/mman.h>

#include "support/eventually.h"

namespace gshm::core::test {
namespace {

// This process uses the fake driver too.
const bool fake_loaded = [] {
    setenv("FAKECUDA_DEVICES", "1", 1);
    setenv("FAKECUDA_FABRIC", "1", 1);
    return dlopen(fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr;
}();

struct KeptObject {
    std::string name;
    std::string device;
    size_t bytes;
};

const std::vector<KeptObject> kKept = {
    {"kept/small-host", "host", 1000},      {"kept/large-host", "host", 300'000},  {"kept/small-cuda", "cuda:0", 1000},
    {"kept/large-cuda", "cuda:0", 300'000}, {"kept/other-cuda", "cuda:0", 64'000},
};

std::string text(const std::vector<uint64_t>& list) {
    std::string made;
    for (uint64_t value : list) made += std::to_string(value) + " ";
    return made;
}

bool runs_all() {
    const char* all = std::getenv("GSHM_FAULTS_ALL");
    return all != nullptr && *all == '1';
}

}  // namespace

const std::vector<std::string> FaultTest::kDevices = {"host", "cuda:0"};

std::string name_of(Class kind) {
    switch (kind) {
        case Class::none: return "none";
        case Class::system: return "system";
        case Class::interrupted: return "interrupted";
        case Class::sqlite: return "sqlite";
        case Class::catalog: return "catalog";
        case Class::device: return "device";
        case Class::end: return "end";
    }
    return {};
}

FaultTest::FaultTest() {
    std::string path = scratch() + "/faults";
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof(faults::Control)) != 0) std::abort();
    void* mapped = mmap(nullptr, sizeof(faults::Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) std::abort();
    control_ = static_cast<faults::Control*>(mapped);
}

FaultTest::~FaultTest() {
    disarm();
    if (HasFailure() && std::getenv("GSHM_FAULTS_LOG") != nullptr) std::cerr << log();
    stop();
    munmap(control_, sizeof(faults::Control));
}

std::vector<std::string> FaultTest::environment() const {
    auto env = fake_cuda_env(1);
    const char* asan = std::getenv("ASAN_OPTIONS");
    env.push_back("FAKECUDA_FABRIC=1");
    env.push_back("FAKECUDA_MEMORY=192M");
    env.push_back("LD_PRELOAD=" + build_path("tests/libfaults.so"));
    env.push_back("GSHM_FAULTS=" + scratch() + "/faults");
    // libfaults.so is loaded before the sanitizer's runtime, and calls it.
    env.push_back(std::string("ASAN_OPTIONS=verify_asan_link_order=0:") + (asan == nullptr ? "" : asan));
    return env;
}

bool FaultTest::start_again(const std::vector<std::string>& further) {
    std::vector<std::string> args = {"--device", "host:128M", "--device", "cuda"};
    args.insert(args.end(), further.begin(), further.end());
    if (!start(args, environment())) return false;
    makers_ = children_of_daemon("gshm-maker");
    return true;
}

void FaultTest::start_all(const std::vector<std::string>& further) {
    ASSERT_TRUE(fake_loaded);
    ASSERT_TRUE(start_again(further)) << log();
    keep_objects();
    check_kept();
}

void FaultTest::keep_objects() {
    auto client = connect();
    for (const auto& kept : kKept) {
        Object object;
        ASSERT_EQ(create(client.get(), kept.name, kept.bytes, kept.device, GSHM_KEEP | GSHM_NO_MAP, &object), 0)
            << gshm_last_error();
        auto bytes = pattern(kept.name, kept.bytes);
        ASSERT_EQ(gshm_copy_in(object.get(), 0, bytes.data(), bytes.size()), 0) << gshm_last_error();
        ASSERT_EQ(gshm_set_attribute(client.get(), kept.name.c_str(), "user.kept", "yes", 3), 0) << gshm_last_error();
        if (kept.name.find("other") == std::string::npos) {
            ASSERT_EQ(gshm_seal(object.get()), 0) << gshm_last_error();
        }
    }
}

// ---- failures ----

void FaultTest::arm(Class kind, uint64_t first, uint64_t count) {
    control_->armed = 0;
    control_->seen = 0;
    control_->failed = 0;
    control_->first = first;
    control_->count = count;
    memset(control_->last, 0, sizeof control_->last);
    control_->armed = static_cast<uint32_t>(kind);
}

bool FaultTest::disarm(uint64_t* ret_seen) {
    control_->armed = 0;
    if (ret_seen != nullptr) *ret_seen = control_->seen;
    return control_->failed > 0;
}

std::vector<uint64_t> FaultTest::choose(uint64_t calls, size_t most) {
    std::vector<uint64_t> chosen;
    uint64_t step = runs_all() || calls <= most ? 1 : (calls + most - 1) / most;
    static const uint64_t seed = [] {
        const char* said = std::getenv("GSHM_FAULTS_SEED");
        uint64_t made = said != nullptr ? std::strtoull(said, nullptr, 10) : std::random_device()();
        std::cout << "GSHM_FAULTS_SEED=" << made << "\n";
        return made;
    }();
    for (uint64_t n = 1 + (step > 1 ? seed % step : 0); n <= calls; n += step) chosen.push_back(n);
    return chosen;
}

void FaultTest::sweep(const Sweep& sweep) {
    // Run twice, so that resources which are created once and kept, such as slabs, exist before the measurement.
    for (int i = 0; i < 2 && !HasFatalFailure(); ++i) {
        sweep.body();
        sweep.clean();
        check_serves();
    }
    ASSERT_FALSE(HasFailure()) << "without any failure\n" << log();
    const Measure before = settled();
    uint64_t calls = 0;
    arm(sweep.kind, UINT64_MAX, 1);
    sweep.body();
    disarm(&calls);
    sweep.clean();
    check_no_more_than(before);
    size_t hit = 0;
    for (uint64_t n : choose(calls, sweep.most)) {
        arm(sweep.kind, n, sweep.count);
        sweep.body();
        hit += disarm() ? 1 : 0;
        SCOPED_TRACE(name_of(sweep.kind) + " call " + std::to_string(n) + " of " + std::to_string(calls) + ", " +
                     last_failed());
        sweep.clean();
        ASSERT_NO_FATAL_FAILURE(check_alive());
        check_kept();
        check_serves();
        sweep.after();
        check_no_more_than(before);
        if (HasFailure()) break;
    }
    std::cout << "  " << name_of(sweep.kind) << (sweep.count == kAll ? " on and on" : "") << ": " << calls
              << " calls, failed " << hit << "\n";
}

// ---- a client's view ----

Client FaultTest::connect() {
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    std::string folder = dir();
    options.dir = folder.c_str();
    gshm_client* client = nullptr;
    int code = gshm_connect(&options, &client);
    outcome(code);
    if (control_->armed == 0) {
        EXPECT_EQ(code, 0) << gshm_last_error();
    }
    return Client(client);
}

Outcome FaultTest::outcome(int code) {
    if (code == 0) return Outcome::done;
    std::string said = gshm_last_error();
    EXPECT_LT(code, 0);
    EXPECT_GT(code, -134) << said;
    EXPECT_NE(code, -EINTR) << said;
    EXPECT_GT(said.size(), 5u) << code;
    for (const char* nonsense : {"Success", "not an error", "Unknown error"}) {
        EXPECT_EQ(said.find(nonsense), std::string::npos) << said;
    }
    if (said.find("the change was made") != std::string::npos) return Outcome::done;
    bool lost = code == -ECONNRESET || code == -EPIPE || code == -ECONNREFUSED || code == -ENOTCONN;
    return lost ? Outcome::unknown : Outcome::undone;
}

int FaultTest::create(gshm_client* client, const std::string& name, uint64_t bytes, const std::string& device,
                      uint32_t flags, Object* ret_object) {
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = name.c_str();
    spec.size_bytes = bytes;
    spec.device = device.c_str();
    spec.flags = flags;
    gshm_object* object = nullptr;
    int code = gshm_create(client, &spec, &object);
    ret_object->reset(object);
    return code;
}

std::string FaultTest::pattern(const std::string& name, size_t bytes) {
    std::string made(bytes, '\0');
    std::minstd_rand random(static_cast<unsigned>(std::hash<std::string>()(name)));
    for (char& c : made) c = static_cast<char>(random());
    return made;
}

std::string FaultTest::check_bytes(gshm_client* client, const std::string& name, const std::string& bytes) {
    gshm_object* opened = nullptr;
    if (gshm_open(client, name.c_str(), GSHM_NO_MAP, &opened) != 0) return name + ": " + gshm_last_error();
    Object object(opened);
    if (gshm_size(opened) != bytes.size()) return name + ": size " + std::to_string(gshm_size(opened));
    std::string there(bytes.size(), '\0');
    if (gshm_copy_out(opened, 0, there.data(), there.size()) != 0) return name + ": " + gshm_last_error();
    return there == bytes ? "" : name + " has other bytes";
}

bool FaultTest::exists(gshm_client* client, const std::string& name) {
    gshm_stat_info info = {};
    info.struct_size = sizeof info;
    int code = gshm_stat(client, name.c_str(), &info);
    EXPECT_TRUE(code == 0 || code == -ENOENT) << gshm_last_error();
    return code == 0;
}

void FaultTest::remove_all(const std::string& folder) {
    auto client = connect();
    gshm_listing* made = nullptr;
    if (gshm_list(client.get(), folder.c_str(), GSHM_RECURSIVE, &made) != 0) return;
    Listing listing(made);
    for (size_t i = gshm_listing_count(made); i-- > 0;) {
        std::string name = folder + "/" + gshm_listing_name(made, i);
        int code = gshm_unlink(client.get(), name.c_str());
        // An implicit folder is removed with its last name.
        EXPECT_TRUE(code == 0 || code == -ENOENT || code == -EISDIR) << name << ": " << gshm_last_error();
    }
}

// ---- invariants ----

void FaultTest::check_alive() {
    ASSERT_TRUE(running()) << log();
    auto client = connect();
    ASSERT_NE(client, nullptr) << log();
    gshm_daemon_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(gshm_daemon(client.get(), &info), 0) << gshm_last_error();
    ASSERT_EQ(info.pid, pid());
}

void FaultTest::check_kept() {
    auto client = connect();
    for (const auto& kept : kKept) {
        EXPECT_EQ(check_bytes(client.get(), kept.name, pattern(kept.name, kept.bytes)), "");
        char value[8] = {};
        size_t bytes = 0;
        EXPECT_EQ(gshm_get_attribute(client.get(), kept.name.c_str(), "user.kept", value, sizeof value, &bytes), 0);
        EXPECT_EQ(std::string(value, bytes), "yes") << kept.name;
    }
}

void FaultTest::check_serves() {
    auto client = connect();
    for (const auto& device : kDevices) {
        for (size_t bytes : {size_t{700}, size_t{200'000}}) {
            std::string name = "fresh/" + device + std::to_string(bytes);
            Object object;
            uint32_t flags = GSHM_NO_MAP | (bytes > 1000 ? uint32_t{GSHM_DEDICATED} : 0u);
            EXPECT_EQ(create(client.get(), name, bytes, device, flags, &object), 0) << gshm_last_error();
            if (!object) continue;
            auto wanted = pattern(name, bytes);
            EXPECT_EQ(check_bytes(client.get(), name, std::string(bytes, '\0')), "") << "at first";
            EXPECT_EQ(gshm_copy_in(object.get(), 0, wanted.data(), bytes), 0) << gshm_last_error();
            EXPECT_EQ(check_bytes(client.get(), name, wanted), "");
            EXPECT_EQ(gshm_unlink(client.get(), name.c_str()), 0) << gshm_last_error();
        }
    }
}

FaultTest::Measure FaultTest::measure() {
    Measure now;
    auto client = connect();
    gshm_device_info devices[4] = {};
    devices[0].struct_size = sizeof devices[0];
    size_t count = 0;
    EXPECT_EQ(gshm_devices(client.get(), devices, 4, &count), 0) << gshm_last_error();
    for (size_t i = 0; i < count; ++i) {
        // A request for the whole capacity, part of which the kept objects use: gshmd frees its cached memory and its
        // empty slabs before it refuses. A create that finds no zeroed range leaves such a slab behind, since another
        // thread zeroes freed ranges. A request above the capacity would be refused at once.
        Object object;
        EXPECT_EQ(create(client.get(), "measure", devices[i].capacity_bytes, devices[i].name, 0, &object), -ENOSPC)
            << devices[i].name;
    }
    gshm_devices(client.get(), devices, 4, &count);
    for (size_t i = 0; i < count; ++i) now.used_bytes.push_back(devices[i].used_bytes);
    gshm_daemon_info info = {};
    info.struct_size = sizeof info;
    gshm_daemon(client.get(), &info);
    now.objects = info.objects;
    now.extents = info.extents;
    now.sessions = info.sessions;
    const std::string process = "/proc/" + std::to_string(pid());
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(process + "/fd")) ++now.descriptors;
    std::ifstream maps(process + "/maps");
    for (std::string line; std::getline(maps, line);) {
        std::string rights = line.substr(line.find(' ') + 1, 4);
        if (rights.ends_with('s')) ++now.mappings;
    }
    return now;
}

size_t FaultTest::children_of_daemon(const std::string& program) const {
    std::ifstream children("/proc/" + std::to_string(pid()) + "/task/" + std::to_string(pid()) + "/children");
    size_t count = 0;
    for (std::string child, name; children >> child;) {
        std::getline(std::ifstream("/proc/" + child + "/comm"), name);
        if (name == program) ++count;
    }
    return count;
}

FaultTest::Measure FaultTest::settled() {
    // A lost gshm-maker is restarted a second later, and its socket is one of the counted descriptors.
    EXPECT_TRUE(eventually([&] { return children_of_daemon("gshm-maker") >= makers_; }));
    Measure last = measure();
    int same = 0;
    eventually([&] {
        Measure now = measure();
        same = now == last ? same + 1 : 0;
        last = now;
        return same == 25;
    });
    return last;
}

void FaultTest::check_no_more_than(const Measure& before) {
    Measure now;
    bool back = eventually([&] {
        now = measure();
        // Fewer is possible: the spare descriptor may not have been reopened, for example.
        return now.objects == before.objects && now.extents <= before.extents && now.used_bytes == before.used_bytes &&
               now.sessions <= before.sessions && now.descriptors <= before.descriptors &&
               now.mappings <= before.mappings;
    });
    if (back) return;
    ADD_FAILURE() << "objects " << before.objects << " -> " << now.objects << ", extents " << before.extents << " -> "
                  << now.extents << ", sessions " << before.sessions << " -> " << now.sessions << ", bytes "
                  << text(before.used_bytes) << " -> " << text(now.used_bytes) << ", descriptors " << before.descriptors
                  << " -> " << now.descriptors << ", mappings " << before.mappings << " -> " << now.mappings;
}

void FaultTest::check_restart(const std::vector<std::string>& further) {
    kill();
    ASSERT_TRUE(start_again(further)) << log();
    check_kept();
    check_serves();
}

}  // namespace gshm::core::test

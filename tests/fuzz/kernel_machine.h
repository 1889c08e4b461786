// A kernel's mount, the daemon behind it and what outlives the daemon, for fuzz targets: as little as FileSystem needs.
// The catalog is written only when the daemon is restarted: all of the store, as commits before would have it.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catalog/catalog.h"
#include "device/host.h"
#include "fuse/file_system.h"
#include "support/memory_device.h"
#include "support/quiet_backend.h"

namespace gshm::core::fuzz {

// Ends the run: a promise was broken.
inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

inline void require(const Status& done, const char* what) {
    if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
    require(done.has_value(), what);
}

class FuzzKernel final : public fuse::KernelRequests {
public:
    Result<int32_t> open_backing(int) override { return next_backing_++; }
    void close_backing(int32_t) override {}
    void forget_entry(uint64_t, std::string_view) override {}
    void forget_attributes(uint64_t) override {}
    bool forget_names() override { return true; }
    void survey(std::vector<uint64_t> nodes, std::function<void(const std::vector<uint64_t>&)> on_unknown) override {
        surveys.emplace_back(std::move(nodes), std::move(on_unknown));
    }
    std::vector<std::pair<std::vector<uint64_t>, std::function<void(const std::vector<uint64_t>&)>>> surveys;

private:
    int32_t next_backing_ = 1;
};

struct Answer {
    int count = 0;
    int error = 0;
    std::string body;
};

class Machine;

class FuzzDaemon final : public test::QuietBackend, private Recorder, private fuse::Channel {
public:
    explicit FuzzDaemon(Machine& machine);
    ~FuzzDaemon() override;

    Answer handle(std::string_view request);

    StoreMutex& store_mutex() override { return store_mutex_; }
    Files& files() override REQUIRES(store_lock) { return files_; }
    // As for an object of a session: a slab is no file.
    Result<std::shared_ptr<Extent>> allocate(const ExtentNeed& need);
    size_t device_count() override { return 2; }
    Device& device(DeviceIndex device) override;
    void mark(const Done& done) override { marks.push_back(done); }
    Status record() override { return {}; }
    const std::string& runtime_dir() const override { return runtime_dir_; }
    bool may_pass_through() const override { return true; }

private:
    void changed(Node&) override {}
    void erased(const Node&) override {}
    void changed(StoredExtent& extent) override;
    void erased(const StoredExtent&) override {}
    void send(std::span<const iovec> parts) override;

    Machine& machine_;
    StoreMutex store_mutex_;
    test::ManualClock clock_;
    test::ImmediateReclaimer reclaimer_;
    Answer answer_;
    std::string runtime_dir_ = "/nonexistent/gshm";  // requests of the fuzzer make no files

public:
    Store store;

private:
    Files files_;
    Ledger ledger_;

public:
    std::vector<Done> marks;
    std::unique_ptr<fuse::FileSystem> file_system;
};

class Machine {
public:
    // Of every kind one: files of the host, and memory as a GPU's.
    static Device& device(DeviceIndex index) {
        static auto host = std::move(*HostDevice::create(uint64_t{64} << 20));
        static test::MemoryDevice memory("memory", uint64_t{64} << 20, true);
        return index == 0 ? static_cast<Device&>(*host) : memory;
    }
    static std::vector<DeviceInfo> devices() { return {device(0).info(), device(1).info()}; }

    explicit Machine(bool passthrough) : passthrough_(passthrough) {
        memset(ledger_bytes().data(), 0, kLedgerBytes);
        daemon = std::make_unique<FuzzDaemon>(*this);
        daemon->file_system->resume({passthrough_, acls_}, {});
    }

    // The daemon is killed, and another one takes up what it has left.
    void restart();

    FuzzKernel kernel;
    std::unique_ptr<FuzzDaemon> daemon;

private:
    friend class FuzzDaemon;
    static constexpr size_t kLedgerBytes = size_t{512} << 10;
    static std::span<std::byte> ledger_bytes() {
        alignas(64) static std::byte bytes[kLedgerBytes];
        return bytes;
    }

    const bool passthrough_;
    static constexpr bool acls_ = true;
    // What outlives a daemon.
    uint64_t ledger_used_ = 0;
    std::map<uint64_t, std::shared_ptr<Extent>> extents_;
    std::unique_ptr<Catalog> catalog_;  // set while a daemon loads it
};

// The path of a file that a catalog can be made in, and nothing is in yet.
inline std::string fresh_catalog() {
    static const std::string folder = [] {
        std::string pattern = access("/dev/shm", W_OK) == 0 ? "/dev/shm/gshm-fuzz-XXXXXX" : "/tmp/gshm-fuzz-XXXXXX";
        require(mkdtemp(pattern.data()) != nullptr, "there is a temporary folder");
        static std::string made = pattern;
        std::atexit([] {
            for (const auto& file : Catalog::files(made + "/gshm.db")) unlink(file.c_str());
            rmdir(made.c_str());
        });
        return pattern;
    }();
    for (const auto& file : Catalog::files(folder + "/gshm.db")) unlink(file.c_str());
    return folder + "/gshm.db";
}

inline FuzzDaemon::FuzzDaemon(Machine& machine)
    : machine_(machine),
      store(clock_, reclaimer_, {0, 0, 1, {}}, Machine::devices()),
      files_(store),
      ledger_(machine.ledger_bytes(), machine.ledger_used_, [this](uint64_t bytes) -> Status {
          machine_.ledger_used_ = bytes;
          return {};
      }) {
    reclaimer_.extents = &store.extents();
    require(store.set_ledger(&ledger_).has_value(), "the ledger has room");
    Restorer restorer(store);
    if (auto* catalog = machine.catalog_.get()) {
        auto take = [&](const Catalog::Kept& kept) -> Result<std::shared_ptr<Extent>> {
            auto found = machine_.extents_.find(kept.key);
            return found == machine_.extents_.end() ? nullptr : found->second;
        };
        require(catalog->load_extents(restorer, take), "extents can be loaded");
        require(catalog->load_nodes(restorer), "nodes can be loaded");
    }
    store.set_recorder(this);
    require(restorer.finish(fuse::restore_known, [](const auto&) { return true; }).has_value(),
            "what was written can be read");
    file_system = std::make_unique<fuse::FileSystem>(*this, machine.kernel);
}

inline FuzzDaemon::~FuzzDaemon() {
    store.set_recorder(nullptr);
    (void)store.set_ledger(nullptr);
}

inline Device& FuzzDaemon::device(DeviceIndex device) {
    return Machine::device(device);
}

inline Result<std::shared_ptr<Extent>> FuzzDaemon::allocate(const ExtentNeed& need) {
    if (need.size_bytes > uint64_t{64} << 20) return fail(ENOSPC, "the device is full");
    return TRY(Machine::device(need.device).allocate(need.size_bytes, {need.compressible, !need.slab}));
}

inline void FuzzDaemon::changed(StoredExtent& extent) {
    machine_.extents_[extent.key] = extent.memory;
}

inline void FuzzDaemon::send(std::span<const iovec> parts) {
    fuse_out_header header = {};
    memcpy(&header, parts[0].iov_base, sizeof header);
    size_t bytes = 0;
    for (const iovec& part : parts) bytes += part.iov_len;
    require(header.len == bytes, "an answer has the length that it says");
    require(header.error <= 0 && header.error > -4096, "an answer's error is one");
    ++answer_.count;
    answer_.error = -header.error;
    for (const iovec& part : parts.subspan(1)) answer_.body.append(static_cast<char*>(part.iov_base), part.iov_len);
}

inline Answer FuzzDaemon::handle(std::string_view request) {
    static std::vector<std::byte> scratch(fuse::FileSystem::kMostBytes);
    answer_ = {};
    {
        // A copy of exactly that size, so that a read beyond it is seen.
        const std::unique_ptr<std::byte[]> copy(new std::byte[request.size()]);
        memcpy(copy.get(), request.data(), request.size());
        fuse::Call call(*this, {copy.get(), request.size()}, scratch);
        file_system->handle(call);
    }
    return std::move(answer_);
}

inline void Machine::restart() {
    kernel.surveys.clear();
    catalog_ = std::move(*Catalog::create(fresh_catalog()));
    require(catalog_->use_devices(devices()).has_value(), "the catalog takes the devices");
    std::unordered_map<uint64_t, NodeId> done;
    for (const auto& mark : daemon->marks) done[mark.request] = mark.node;
    {
        StoreLock lock(daemon->store_mutex());
        for (Node* node : daemon->files().all()) catalog_->changed(*node);
    }
    for (StoredExtent* extent : daemon->store.extents().all()) catalog_->changed(*extent);
    require(catalog_->commit().has_value(), "the catalog can be written");
    daemon->store.set_recorder(nullptr);
    (void)daemon->store.set_ledger(nullptr);  // as a kill: nothing that ends with it is noted
    daemon.reset();
    daemon = std::make_unique<FuzzDaemon>(*this);
    catalog_.reset();
    daemon->file_system->resume({passthrough_, acls_}, std::move(done));
    daemon->file_system->forget_all_remembered();
}

}  // namespace gshm::core::fuzz

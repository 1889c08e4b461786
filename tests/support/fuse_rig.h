// fuse::FileSystem between a simulated kernel and a simulated daemon: the test makes the requests and kills the daemon
// at chosen points. As with gshmd, the catalog, the ledger, the extents and the kernel outlive the daemon.
#pragma once

#include <cstring>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/worker.h"
#include "catalog/catalog.h"
#include "device/host.h"
#include "fuse/file_system.h"
#include "support/memory_device.h"
#include "support/quiet_backend.h"

namespace gshm::core::test {

// Thrown where a daemon is killed during a request.
struct Killed {};

// The points where a daemon can be killed: before and after each call to the kernel, before and after each write to the
// catalog, and when a reply is ready but not sent.
enum class KillPoint { none, open_backing, opened_backing, close_backing, closed_backing, record, recorded, answer };

class RigKernel final : public fuse::KernelRequests {
public:
    Result<int32_t> open_backing(int fd) override {
        pass(KillPoint::open_backing);
        const int32_t id = next_backing_++;
        backing_.emplace(id, TRY(UniqueFd::clone(fd)));
        pass(KillPoint::opened_backing);
        return id;
    }
    void close_backing(int32_t id) override {
        pass(KillPoint::close_backing);
        backing_.erase(id);
        pass(KillPoint::closed_backing);
    }
    void forget_entry(uint64_t, std::string_view) override {}
    void forget_attributes(uint64_t) override {}
    bool forget_names() override { return true; }
    void survey(std::vector<uint64_t> nodes, std::function<void(const std::vector<uint64_t>&)> on_unknown) override {
        surveys_.push_back({std::move(nodes), std::move(on_unknown)});
    }

    bool has_backing(int32_t id) const { return backing_.contains(id); }
    size_t backing_count() const { return backing_.size(); }
    // The bytes that a process reads through passthrough.
    std::string read_backing(int32_t id) const {
        std::string bytes(1 << 16, '\0');
        auto found = backing_.find(id);
        const ssize_t got = found == backing_.end() ? -1 : pread(found->second.get(), bytes.data(), bytes.size(), 0);
        bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
        return bytes;
    }
    bool write_backing(int32_t id, std::string_view bytes) const {
        auto found = backing_.find(id);
        return found != backing_.end() &&
               pwrite(found->second.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    }

private:
    friend class FuseRig;
    struct Survey {
        std::vector<uint64_t> nodes;
        std::function<void(const std::vector<uint64_t>&)> on_unknown;
    };
    void pass(KillPoint point) const {
        if (on_pass_) on_pass_(point);
    }

    int32_t next_backing_ = 1;  // counts up, as in the kernel
    std::map<int32_t, UniqueFd> backing_;
    std::deque<Survey> surveys_;
    std::function<void(KillPoint)> on_pass_;
};

// A request of the kernel, as read from /dev/fuse.
class RigRequest {
public:
    RigRequest(uint32_t opcode, uint64_t node, uint32_t user = 0) {
        fuse_in_header header = {};
        header.opcode = opcode;
        header.nodeid = node;
        header.uid = header.gid = user;
        header.pid = 1;
        bytes_.assign(reinterpret_cast<const char*>(&header), sizeof header);
    }
    template <typename Part>
    RigRequest& add(const Part& part) {
        bytes_.append(reinterpret_cast<const char*>(&part), sizeof part);
        return *this;
    }
    RigRequest& add_text(std::string_view text) {
        bytes_.append(text).push_back('\0');
        return *this;
    }
    RigRequest& add_bytes(std::string_view bytes) {
        bytes_.append(bytes);
        return *this;
    }

private:
    friend class FuseRig;
    fuse_in_header& header() { return *reinterpret_cast<fuse_in_header*>(bytes_.data()); }
    std::string bytes_;
};

struct RigAnswer {
    bool given = false;  // false: the daemon was killed first, or the request has no reply
    int error = 0;       // as errno
    std::string body;

    bool is_good() const { return given && error == 0; }
    template <typename Part>
    Part part(size_t offset = 0) const {
        Part found = {};
        EXPECT_GE(body.size(), offset + sizeof found) << "error " << error;
        if (body.size() >= offset + sizeof found) memcpy(&found, body.data() + offset, sizeof found);
        return found;
    }
    NodeId node() const { return part<fuse_entry_out>().nodeid; }
    // The reply to OPEN. For CREATE and TMPFILE it follows the entry.
    fuse::OpenOut open_out() const {
        return part<fuse::OpenOut>(body.size() > sizeof(fuse::OpenOut) ? sizeof(fuse_entry_out) : 0);
    }
};

class FuseRig {
public:
    struct Options {
        bool files = true;  // extents are files (host), else plain memory (as on a GPU)
        bool passthrough = true;
        bool acls = true;  // negotiated with the kernel
    };
    FuseRig() : FuseRig(Options{}) {}
    explicit FuseRig(Options options)
        : options_(options), ledger_(new(std::align_val_t{64}) std::byte[kLedgerBytes]()) {
        std::string pattern = (std::filesystem::temp_directory_path() / "gshm-fuse-XXXXXX").string();
        folder_ = mkdtemp(pattern.data());
        if (options_.files) device_ = std::move(*HostDevice::create(uint64_t{1} << 30));
        else device_ = std::make_unique<MemoryDevice>("memory", uint64_t{1} << 30);
        kernel.on_pass_ = [this](KillPoint point) { pass(point); };
        start();
    }
    ~FuseRig() {
        kill();
        std::filesystem::remove_all(folder_);
        operator delete[](ledger_, std::align_val_t{64});
    }

    RigKernel kernel;

    // ---- the life of the daemon ----
    // Kills the daemon when it next reaches that point.
    void kill_at(KillPoint point) { kill_at_ = point; }
    bool is_dead() const { return daemon_ == nullptr || daemon_->dead; }
    void kill() {
        if (daemon_ == nullptr) return;
        daemon_->die();
        kernel.surveys_.clear();
        daemon_.reset();
    }
    // Starts another daemon with the state of the last one. The kernel keeps requests without a reply; see resend().
    void restart() {
        kill();
        kill_at_ = KillPoint::none;
        start();
    }
    Store& store() { return daemon_->store; }
    Files& files() { return daemon_->files_; }
    Catalog& catalog() { return *daemon_->catalog; }
    fuse::FileSystem& file_system() { return *daemon_->file_system; }

    // ---- requests of the kernel ----
    RigAnswer ask(RigRequest request) {
        request.header().unique = next_unique_;
        next_unique_ += 2;
        request.header().len = static_cast<uint32_t>(request.bytes_.size());
        return give(request.bytes_);
    }
    // FUSE_NOTIFY_RESEND: the replies to the requests that were read but not answered, in order.
    std::vector<RigAnswer> resend() {
        std::vector<RigAnswer> answers;
        for (auto& [unique, bytes] : std::exchange(unanswered_, {})) {
            auto again = bytes;
            reinterpret_cast<fuse_in_header*>(again.data())->unique = unique | fuse::kResent;
            answers.push_back(give(again));
        }
        return answers;
    }
    // Answers the surveys that the daemon has requested: the kernel knows these nodes.
    void answer_surveys(const std::set<NodeId>& known) {
        while (!kernel.surveys_.empty()) {
            auto survey = std::move(kernel.surveys_.front());
            kernel.surveys_.pop_front();
            std::erase_if(survey.nodes, [&](NodeId node) { return known.contains(node); });
            run([&] { survey.on_unknown(survey.nodes); });
        }
    }

    RigAnswer lookup(std::string_view name, NodeId parent = Files::kRoot) {
        return ask(RigRequest(FUSE_LOOKUP, parent).add_text(name));
    }
    RigAnswer create(std::string_view name, uint32_t user = 0, uint32_t mode = 0644, uint32_t flags = O_RDWR) {
        fuse_create_in in = {};
        in.flags = flags | O_CREAT;
        in.mode = mode;
        return ask(RigRequest(FUSE_CREATE, Files::kRoot, user).add(in).add_text(name));
    }
    RigAnswer open(NodeId node, uint32_t flags = O_RDWR, uint32_t user = 0) {
        fuse_open_in in = {};
        in.flags = flags;
        return ask(RigRequest(FUSE_OPEN, node, user).add(in));
    }
    RigAnswer release(NodeId node, FileId file) {
        fuse_release_in in = {};
        in.fh = file;
        return ask(RigRequest(FUSE_RELEASE, node).add(in));
    }
    RigAnswer read(NodeId node, FileId file, uint32_t bytes = 1000) {
        fuse_read_in in = {};
        in.fh = file;
        in.size = bytes;
        return ask(RigRequest(FUSE_READ, node).add(in));
    }
    RigAnswer write(NodeId node, FileId file, std::string_view bytes) {
        fuse_write_in in = {};
        in.fh = file;
        in.size = static_cast<uint32_t>(bytes.size());
        return ask(RigRequest(FUSE_WRITE, node).add(in).add_bytes(bytes));
    }
    RigAnswer get_attributes(NodeId node) { return ask(RigRequest(FUSE_GETATTR, node).add(fuse_getattr_in{})); }
    RigAnswer rename(std::string_view from, std::string_view to) {
        fuse_rename_in in = {};
        in.newdir = Files::kRoot;
        return ask(RigRequest(FUSE_RENAME, Files::kRoot).add(in).add_text(from).add_text(to));
    }
    RigAnswer unlink(std::string_view name) { return ask(RigRequest(FUSE_UNLINK, Files::kRoot).add_text(name)); }
    RigAnswer forget(NodeId node, uint64_t lookups) {
        return ask(RigRequest(FUSE_FORGET, node).add(fuse_forget_in{lookups}));
    }

private:
    static constexpr size_t kLedgerBytes = 1 << 20;

    class Daemon final : public QuietBackend, private Recorder, private fuse::Channel {
    public:
        Daemon(FuseRig& rig)
            : rig_(rig),
              store(clock_, reclaimer_, {0, 0, 1, {}}, {rig.device_->info()}),
              files_(store),
              catalog(std::move(*Catalog::create(rig.folder_ + "/gshm.db"))),
              ledger_(std::span(rig.ledger_, kLedgerBytes), rig.ledger_bytes_, [this](uint64_t bytes) -> Status {
                  rig_.ledger_bytes_ = bytes;
                  return {};
              }) {
            reclaimer_.extents = &store.extents();
            EXPECT_TRUE(catalog->use_devices(store.devices()));
            EXPECT_TRUE(store.set_ledger(&ledger_));
            Restorer restorer(store);
            EXPECT_TRUE(catalog->load_extents(restorer, [&](const Catalog::Kept& wanted) -> std::shared_ptr<Extent> {
                auto found = rig_.extents_.find(wanted.key);
                return found == rig_.extents_.end() ? nullptr : found->second;
            }));
            EXPECT_TRUE(catalog->load_nodes(restorer));
            store.set_recorder(this);
            EXPECT_TRUE(restorer.finish(fuse::restore_known, [](const auto&) { return true; }));
            EXPECT_TRUE(catalog->commit());
            pending_ = false;
            file_system = std::make_unique<fuse::FileSystem>(*this, rig.kernel);
        }
        // From any thread. Later actions of this daemon have no effect.
        void die() {
            dead = true;
            store.set_recorder(nullptr);
            (void)store.set_ledger(nullptr);
        }
        RigAnswer handle(std::string_view request) {
            answer_ = {};
            fuse::Call call(*this, std::as_bytes(std::span(request)), scratch_);
            file_system->handle(call);
            return answer_;
        }

        // ---- fuse::Backend ----
        StoreMutex& store_mutex() override { return store_mutex_; }
        Files& files() override REQUIRES(store_lock) { return files_; }
        size_t device_count() override { return 1; }
        Device& device(DeviceIndex) override { return *rig_.device_; }
        void mark(const Done& done) override {
            if (dead) return;
            catalog->mark_done(done.request, done.node, done.answered);
            pending_ = true;
        }
        Status record() override {
            if (dead || !pending_) return {};
            if (store_mutex_.is_mine()) return commit();
            StoreLock lock(store_mutex_);
            return commit();
        }
        Status commit() {
            rig_.pass(KillPoint::record);
            TRY(catalog->commit());
            pending_ = false;
            rig_.pass(KillPoint::recorded);
            return {};
        }
        const std::string& runtime_dir() const override { return rig_.folder_; }
        bool may_pass_through() const override { return rig_.options_.passthrough; }

    private:
        // ---- Recorder ----
        void changed(Node& node) override {
            catalog->changed(node);
            pending_ = true;
        }
        void erased(const Node& node) override {
            catalog->erased(node);
            pending_ = true;
        }
        void changed(StoredExtent& extent) override {
            rig_.extents_[extent.key] = extent.memory;
            catalog->changed(extent);
            pending_ = true;
        }
        void erased(const StoredExtent& extent) override {
            catalog->erased(extent);
            pending_ = true;
        }

        // ---- fuse::Channel ----
        void send(std::span<const iovec> parts) override {
            if (dead) return;
            rig_.pass(KillPoint::answer);
            fuse_out_header header = {};
            memcpy(&header, parts[0].iov_base, sizeof header);
            answer_.given = true;
            answer_.error = -header.error;
            for (const iovec& part : parts.subspan(1))
                answer_.body.append(static_cast<char*>(part.iov_base), part.iov_len);
        }

        FuseRig& rig_;
        StoreMutex store_mutex_;
        SystemClock clock_;
        ImmediateReclaimer reclaimer_;
        bool pending_ = false;  // there are changes since the last record()
        RigAnswer answer_;
        std::vector<std::byte> scratch_ = std::vector<std::byte>(fuse::FileSystem::kMostBytes);

    public:
        Store store;
        Files files_;
        std::unique_ptr<Catalog> catalog;
        std::unique_ptr<fuse::FileSystem> file_system;
        bool dead = false;

    private:
        Ledger ledger_;

    public:
        Worker worker;  // last: the only thread of the daemon, with its thread-local state
    };

    void start() {
        daemon_ = std::make_unique<Daemon>(*this);
        run([this] {
            // As Mount::resume() does; the test calls resend().
            auto done = daemon_->catalog->done();
            EXPECT_TRUE(done);
            daemon_->file_system->resume({options_.passthrough, options_.acls}, std::move(*done));
            daemon_->file_system->forget_all_remembered();
        });
    }
    void pass(KillPoint point) {
        if (kill_at_ != point || daemon_ == nullptr || daemon_->dead) return;
        kill_at_ = KillPoint::none;
        daemon_->die();
        throw Killed{};
    }
    // Runs in the thread of the daemon, until the body returns or the daemon is killed.
    void run(const std::function<void()>& body) {
        std::promise<void> done;
        daemon_->worker.submit([&] {
            try {
                body();
            } catch (const Killed&) {}
            done.set_value();
        });
        done.get_future().wait();
    }
    RigAnswer give(const std::string& request) {
        fuse_in_header header = {};
        memcpy(&header, request.data(), sizeof header);
        const bool wants_answer = header.opcode != FUSE_FORGET && header.opcode != FUSE_BATCH_FORGET;
        RigAnswer answer;
        if (!is_dead()) run([&] { answer = daemon_->handle(request); });
        if (wants_answer && !answer.given) unanswered_.emplace_back(header.unique & ~fuse::kResent, request);
        return answer;
    }

    const Options options_;
    std::string folder_;
    std::unique_ptr<Device> device_;
    // These outlive the daemon.
    std::byte* const ledger_;
    uint64_t ledger_bytes_ = 0;
    std::map<uint64_t, std::shared_ptr<Extent>> extents_;
    std::vector<std::pair<uint64_t, std::string>> unanswered_;
    uint64_t next_unique_ = 2;
    KillPoint kill_at_ = KillPoint::none;
    std::unique_ptr<Daemon> daemon_;
};

}  // namespace gshm::core::test

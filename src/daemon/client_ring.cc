#include "daemon/client_ring.h"

#include <algorithm>
#include <shared_mutex>

#include "base/log.h"
#include "daemon/server.h"
#include "memory/transfer_counters.h"
#include "store/gate.h"

namespace gshm::core {

RingObject::RingObject(Server& server, Object* object, Access access)
    : server_(server), object_(object), access_(access), device_(object->device), gate_(Store::gate(object)) {
    server_.store().pin_memory(object_, access_);
}

RingObject::~RingObject() {
    auto let_go = [&server = server_, object = object_, access = access_, written = written_.load()] {
        store_lock.assert_held();
        if (written) server.store().modified(object);
        server.store().unpin_memory(object, access);
    };
    // Unpinned at once if this thread holds the store lock: the client's next request may seal the object.
    if (server_.loop().store_mutex().is_mine()) let_go();
    else server_.loop().post(let_go);
}

struct ClientRing::Job final : io::Transfer {
    explicit Job(ClientRing& of) : ring(of) {}
    void done(Result<uint64_t> result) override { ring.end(*this, std::move(result)); }

    ClientRing& ring;
    ring::Entry entry = {};
    std::shared_ptr<io::File> held_file;
    std::shared_ptr<RingObject> object;
    std::shared_ptr<Extent> memory;
    std::shared_ptr<Mapping> mapping;
    uint64_t since_ns = 0;
};

ClientRing::ClientRing(Server& server, ring::Consumer consumer, std::shared_ptr<io::Engine> engine,
                       std::shared_ptr<std::atomic<uint64_t>> all_under_way)
    : server_(server),
      engine_(std::move(engine)),
      consumer_(std::move(consumer)),
      all_under_way_(std::move(all_under_way)) {}

ClientRing::~ClientRing() {
    engine_->remove(*this);
}

std::shared_ptr<io::File> ClientRing::set_file(uint32_t slot, std::shared_ptr<io::File> file) {
    MutexLock lock(mutex_);
    if (slot >= files_.size()) files_.resize(slot + 1);
    return std::exchange(files_[slot], std::move(file));
}

size_t ClientRing::file_count() {
    MutexLock lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(files_, [](const auto& file) { return file != nullptr; }));
}

void ClientRing::set_object(uint32_t slot, std::shared_ptr<RingObject> object) {
    std::shared_ptr<RingObject> old;
    MutexLock lock(mutex_);
    if (slot >= objects_.size()) objects_.resize(slot + 1);
    old = std::exchange(objects_[slot], std::move(object));
}

void ClientRing::pause(bool paused) {
    paused_.store(paused, std::memory_order_release);
    // The engine may sleep while the ring has entries.
    if (!paused) engine_->poke(*this);
}

bool ClientRing::poll() {
    bool started = false;
    ring::Entry entry;
    for (uint32_t count = 0; !paused_.load(std::memory_order_acquire); ++count) {
        // Refused entries are completed here. The bound keeps a client that sends only such entries from delaying
        // others.
        if (count > 2 * consumer_.entries()) {
            engine_->poke(*this);
            break;
        }
        // Counted before `paused_` is read, so that after pause() is_idle() is false while an entry is being started.
        under_way_.fetch_add(1, std::memory_order_acq_rel);
        all_under_way_->fetch_add(1, std::memory_order_acq_rel);
        if (paused_.load(std::memory_order_acquire) || !consumer_.take(&entry)) {
            under_way_.fetch_sub(1, std::memory_order_acq_rel);
            all_under_way_->fetch_sub(1, std::memory_order_acq_rel);
            break;
        }
        if (int error = begin(entry); error != 0) complete(entry.token, -error, 0);
        else started = true;
    }
    // The engine calls poll() after every round in which transfers ended: their completions are flushed together.
    consumer_.flush();
    if (consumer_.is_broken()) log_debug("a ring's client has written what cannot be; nothing more is taken from it");
    return started;
}

std::unique_ptr<ClientRing::Job> ClientRing::take_job() {
    if (idle_jobs_.empty()) return std::make_unique<Job>(*this);
    auto job = std::move(idle_jobs_.back());
    idle_jobs_.pop_back();
    return job;
}

int ClientRing::begin(const ring::Entry& entry) {
    const bool reads = entry.operation == static_cast<uint32_t>(ring::Operation::read);
    if (!reads && entry.operation != static_cast<uint32_t>(ring::Operation::write)) return EINVAL;
    auto job = take_job();
    {
        MutexLock lock(mutex_);
        if (entry.file < files_.size()) job->held_file = files_[entry.file];
        if (entry.object < objects_.size()) job->object = objects_[entry.object];
    }
    int error = 0;
    if (!job->held_file || !(reads ? job->held_file->is_readable() : job->held_file->is_writable())) error = EBADF;
    else if (!job->object) error = ENOENT;
    else if (reads && !job->object->is_writable()) error = EACCES;
    if (error == 0) {
        job->entry = entry;
        job->since_ns = steady_now_ns();
        job->direction = reads ? io::Direction::read : io::Direction::write;
        job->file = job->held_file.get();
        error = place(*job);
    }
    if (error != 0) {
        job->held_file.reset();
        job->object.reset();
        idle_jobs_.push_back(std::move(job));
        return error;
    }
    engine_->start(*job.release());
    return 0;
}

int ClientRing::place(Job& job) {
    Gate& gate = job.object->gate();
    std::shared_lock lock(gate.mutex);
    const ring::Entry& entry = job.entry;
    const uint64_t size = gate.size_bytes.load(std::memory_order_relaxed);
    if (entry.object_offset > size || entry.bytes > size - entry.object_offset) return EINVAL;
    if (entry.file_offset > INT64_MAX || entry.bytes > INT64_MAX - entry.file_offset) return EINVAL;
    if (!gate.memory && entry.bytes != 0) return ENODATA;
    job.memory = gate.memory;
    job.file_offset = entry.file_offset;
    job.bytes = entry.bytes;
    job.copier = nullptr;
    job.address = 0;
    if (entry.bytes == 0) return 0;
    if (auto* file = job.memory->file()) {
        auto mapping = file->mapping();
        if (!mapping) return mapping.error().code;
        job.mapping = std::move(*mapping);
        const uint64_t begin = gate.offset + entry.object_offset;
        // A process with the file open may have truncated and extended it. Its size is read again at the next open.
        if (begin > job.mapping->size() || entry.bytes > job.mapping->size() - begin) return EINVAL;
        job.address = reinterpret_cast<uint64_t>(job.mapping->data()) + begin;
    } else {
        job.address = job.memory->address() + gate.offset + entry.object_offset;
        job.copier = job.memory->copier();
    }
    return 0;
}

void ClientRing::end(Job& job, Result<uint64_t> bytes) {
    std::unique_ptr<Job> owned(&job);
    const bool reads = job.direction == io::Direction::read;
    if (reads && bytes && job.memory) {
        // The gate was not held during the transfer: a file of the mount may have new memory, or be shorter.
        Gate& gate = job.object->gate();
        std::shared_lock lock(gate.mutex);
        const bool moved = gate.memory != job.memory;
        const uint64_t size = gate.size_bytes.load(std::memory_order_relaxed);
        lock.unlock();
        if (moved && job.entry.object_offset + job.entry.bytes <= size && place(job) == 0) {
            engine_->start(*owned.release());
            return;
        }
        // Bytes beyond an object's end must be zero, since the object may grow again.
        if (!moved && job.entry.object_offset + job.entry.bytes > size && job.memory->file() == nullptr) {
            const uint64_t keep = size > job.entry.object_offset ? size - job.entry.object_offset : 0;
            const uint64_t begin = job.address - job.memory->address() + keep;
            if (auto filled = job.memory->fill(begin, job.entry.bytes - keep, 0); !filled) {
                log_warning("{}", filled.error().message);
            }
        }
        job.object->set_written();
    }
    int64_t result = 0;
    if (bytes) {
        count(job);
        result = static_cast<int64_t>(*bytes);
    } else {
        result = -bytes.error().code;
        log_debug("a transfer failed: {}", bytes.error().message);
        if (bytes.error().device_lost) {
            server_.loop().post([&server = server_, device = job.object->device(), error = bytes.error()] {
                store_lock.assert_held();
                server.devices().report(device, error);
            });
        }
    }
    const uint32_t token = job.entry.token;
    const uint32_t path = job.path;
    // Released before the completion: the client may then close and seal the object.
    job.held_file.reset();
    job.object.reset();
    job.memory.reset();
    job.mapping.reset();
    idle_jobs_.push_back(std::move(owned));
    complete(token, result, path);
}

void ClientRing::count(const Job& job) {
    constexpr TransferPath kPaths[io::kWays] = {TransferPath::direct, TransferPath::cached, TransferPath::hole,
                                                TransferPath::cufile};
    const auto direction = job.direction == io::Direction::read ? TransferDirection::in : TransferDirection::out;
    const DeviceIndex device = job.object->device();
    for (size_t way = 0; way < io::kWays; ++way) {
        if (job.bytes_by[way] != 0) TransferCounters::note_bytes(device, direction, kPaths[way], job.bytes_by[way]);
    }
    TransferCounters::note_duration(device, direction, steady_now_ns() - job.since_ns);
}

void ClientRing::complete(uint32_t token, int64_t result, uint32_t path) {
    consumer_.post({result, token, path});
    under_way_.fetch_sub(1, std::memory_order_acq_rel);
    all_under_way_->fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace gshm::core

// Moves bytes between files and memory, many transfers at once: through io_uring, or through threads where that is refused.
// One engine is one thread; several share the staging memory and the devices' copiers.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/copier.h"
#include "io/file.h"
#include "io/staging.h"

namespace gshm::io {

enum class Direction : uint8_t { read, write };  // from the file into memory, from memory into the file

// Which ways bytes took; the same bits as GSHM_PATH_... in gshm.h.
enum Path : uint32_t {
    kPathDirect = 1u << 0,
    kPathCached = 1u << 1,
    kPathStaged = 1u << 2,
    kPathHole = 1u << 3,
    kPathCuFile = 1u << 4,
    kPathThreads = 1u << 5,
};

struct SourceSlot;

// One transfer. It, the file, the memory and the copier stay until done() is called.
class Transfer {
public:
    Direction direction = Direction::read;
    File* file = nullptr;
    uint64_t file_offset = 0;
    uint64_t address = 0;      // of the memory, as Extent::address()
    Copier* copier = nullptr;  // of the memory's device; null: ordinary memory
    uint64_t bytes = 0;        // any number; large ones are split and overlapped
    uint32_t path = 0;         // Path bits, when it is done

    // In the engine's thread, once, when every byte is in place: how many they were (fewer than asked for only where the
    // file ends), or what went wrong first. The transfer is the caller's again: it may start another with it, or delete it.
    virtual void done(Result<uint64_t> bytes) = 0;

protected:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer() = default;

private:
    friend class EngineCore;
    friend class TransferList;
    // What is left to do; the engine's.
    uint64_t next_ = 0;          // where the next piece begins
    uint64_t end_ = 0;           // where the file turned out to end, at most `bytes`
    uint64_t stretch_end_ = 0;   // up to here, from next_ on, all is data or all is hole
    uint32_t pieces_ = 0;        // under way
    bool in_hole_ = false;       // of which kind that stretch is
    bool is_large_ = false;
    bool in_list_ = false;
    bool by_cufile_ = false;     // where it is not in the page cache
    uint8_t trial_ = 0;          // how far it has come with measuring which way is faster; 0: it does not
    uint64_t trial_since_ns_ = 0;
    uint64_t trial_staged_ns_ = 0;
    Transfer* list_next_ = nullptr;
    SourceSlot* slot_ = nullptr;
    std::unique_ptr<Error> error_;
};

// Where an engine's transfers come from. Its calls come from the engine's thread.
class Source {
public:
    virtual ~Source() = default;
    // An eventfd that is written when there is something to start and sleep() had said that the engine sleeps. The engine
    // does not read it, and nobody needs to. Stays open until remove() returns.
    virtual int doorbell() const = 0;
    // Starts what is there with Engine::start(). Called when the doorbell rang, when transfers of this source are done, and
    // before the engine sleeps. True: something was started.
    virtual bool poll() = 0;
    // From now on the doorbell is needed (true) or not (false). After sleep(true) poll() is called once more, and must
    // start all it can: the engine sleeps next.
    virtual void sleep(bool asleep) = 0;
};

class Engine {
public:
    struct Options {
        unsigned depth = 128;       // requests to the kernel at once
        bool allow_uring = true;    // false: threads, as where io_uring is refused
        unsigned threads = 16;      // of these, at most
        bool allow_cufile = true;   // where it is there and measures faster than staging
        Staging::User staging_user = Staging::kAlone;  // of those who share the staging memory; engines may have the same
        uint64_t cufile_trial_bytes = uint64_t{128} << 20;  // each way, to find that out
    };
    // staging may be null: then transfers with a copier fail with ENOMEM.
    static Result<std::unique_ptr<Engine>> create(std::shared_ptr<Staging> staging, const Options& options);
    // No sources are left; what was started is waited for.
    virtual ~Engine() = default;

    // From any thread but the engine's own. After remove() the engine calls the source no more; what it has started is
    // done by then, and what was not under way of that has ended with ECANCELED.
    virtual Status add(Source& source) = 0;
    virtual void remove(Source& source) = 0;
    // From any thread: the source is polled soon, as if its doorbell had rung. It has been added, and is not removed yet.
    virtual void poke(Source& source) = 0;
    // In the engine's thread: from Source::poll() or Transfer::done(). done() is never called before this returns.
    virtual void start(Transfer& transfer) = 0;
    virtual bool uses_uring() const = 0;
};

}  // namespace gshm::io

// Moves bytes between files and memory, many transfers at once: through io_uring, or through threads if io_uring is not
// permitted. An engine has one thread; engines share the staging memory and the devices' copiers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/file_rights.h"
#include "base/result.h"
#include "device/copier.h"
#include "io/file.h"
#include "io/staging.h"

namespace gshm::core::io {

enum class Direction : uint8_t { read, write };  // file to memory, memory to file

// The paths of bytes; the same bits as GSHM_PATH_... in gshm.h.
enum Path : uint32_t {
    kPathDirect = 1u << 0,
    kPathCached = 1u << 1,
    kPathStaged = 1u << 2,
    kPathHole = 1u << 3,
    kPathCuFile = 1u << 4,
    kPathThreads = 1u << 5,
};

struct SourceSlot;

// Each byte of a transfer takes one of these paths to or from the file.
enum class Way : uint8_t { direct, cached, hole, cufile };
inline constexpr size_t kWays = 4;

// One transfer. The transfer, the file, the memory and the copier must stay valid until done() is called.
class Transfer {
public:
    Direction direction = Direction::read;
    File* file = nullptr;
    uint64_t file_offset = 0;
    uint64_t address = 0;                       // of the memory, as Extent::address()
    Copier* copier = nullptr;                   // of the memory's device; null: ordinary memory
    uint64_t bytes = 0;                         // any number; large transfers are split and overlapped
    uint32_t path = 0;                          // Path bits, set when done
    std::array<uint64_t, kWays> bytes_by = {};  // by Way, set when done without an error

    // Called once in the engine's thread, when the transfer is complete: with the number of bytes (fewer than requested
    // only at the end of the file), or with the first error. The caller owns the transfer again, and may restart or
    // delete it.
    virtual void done(Result<uint64_t> bytes) = 0;

protected:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer() = default;

private:
    friend class EngineCore;
    friend class TransferList;
    // Progress; used by the engine only.
    uint64_t next_ = 0;         // start of the next piece
    uint64_t end_ = 0;          // end of the file, at most `bytes`
    uint64_t stretch_end_ = 0;  // end of the data or hole that begins at next_
    uint32_t pieces_ = 0;       // in flight
    bool in_hole_ = false;      // kind of that stretch
    bool is_large_ = false;
    bool in_list_ = false;
    bool by_cufile_ = false;  // for uncached parts
    uint8_t trial_ = 0;       // stage of the cuFile measurement; 0: none
    uint64_t trial_since_ns_ = 0;
    uint64_t trial_staged_ns_ = 0;
    Transfer* list_next_ = nullptr;
    SourceSlot* slot_ = nullptr;
    std::unique_ptr<Error> error_;
};

// A source of transfers. Called in the engine's thread.
class Source {
public:
    virtual ~Source() = default;
    // An eventfd that is written when there is work to start after sleep(true). The engine does not read it. Must stay
    // open until remove() returns.
    virtual int doorbell() const = 0;
    // Starts the available work with Engine::start(). Called after the doorbell, after transfers of this source end,
    // and before the engine sleeps. Returns whether work was started.
    virtual bool poll() = 0;
    // Whether the doorbell is needed from now on. After sleep(true) poll() is called once more and must start all it
    // can, since the engine sleeps next.
    virtual void sleep(bool asleep) = 0;
};

class Engine {
public:
    struct Options {
        unsigned depth = 128;                          // requests in flight to the kernel
        bool allow_uring = true;                       // false: threads, as without io_uring
        unsigned threads = 16;                         // maximum number of threads
        bool allow_cufile = true;                      // if present and faster than staging
        Staging::User staging_user = Staging::kAlone;  // shares the staging memory; several engines may have the same
        uint64_t cufile_trial_bytes = uint64_t{128} << 20;  // each way, for the measurement
        std::optional<FileRights> rights = {};              // of the user of the files; none: those of the process
        int nice = 0;                                       // of its threads, see setpriority(2)
    };
    // staging may be null; transfers with a copier then fail with ENOMEM.
    static Result<std::unique_ptr<Engine>> create(std::shared_ptr<Staging> staging, const Options& options);
    // Precondition: no sources. Waits for started transfers.
    virtual ~Engine() = default;

    // From any thread but the engine's own. After remove() the engine does not call the source any more: its started
    // transfers are done, and those not in flight have ended with ECANCELED.
    virtual Status add(Source& source) = 0;
    virtual void remove(Source& source) = 0;
    // From any thread: polls the source soon, as if its doorbell had rung. The source must be added and not removed.
    virtual void poke(Source& source) = 0;
    // In the engine's thread: from Source::poll() or Transfer::done(). done() is never called before this returns.
    virtual void start(Transfer& transfer) = 0;
    virtual bool uses_uring() const = 0;
};

}  // namespace gshm::core::io

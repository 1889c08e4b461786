// A device is a place for bytes; an extent is one physical allocation of it, mapped into this process. The store and
// the daemon know only this interface. host.h and cuda.h implement it, kinds.h lists the implementations.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/result.h"
#include "device/streams.h"

namespace gshm::core {

enum class Access { read, write };

// The same bits as GSHM_HANDLE_... in gshm.h.
enum HandleKind : uint32_t { kHandlePosixFd = 1, kHandleFabric = 2, kHandleDmaBuf = 4 };

using FabricHandle = std::array<uint8_t, 64>;
using IpcHandle = std::array<uint8_t, 64>;

// The handle refers to the whole allocation that contains the extent.
struct IpcExport {
    IpcHandle handle = {};
    uint64_t allocation_bytes = 0;
    uint64_t offset = 0;  // of the extent in the allocation
};

struct DeviceInfo {
    std::string name;  // "host", "cuda:0" (ordinal in this process): the kind, and a selector if there may be several
    std::string uuid;  // identifies it between processes; empty for host
    std::string model;
    uint64_t capacity_bytes = 0;
    uint64_t granularity_bytes = 0;  // extents are multiples of this
    uint32_t handle_kinds = 0;
    bool compressible = false;
    std::string pci_bus_id;  // "0000:1b:00.0", as in /sys/bus/pci/devices; empty if there is none
    int numa_node = -1;      // nearest node; -1: unknown, or only one
    // Resizable extents are kernel files of exactly the requested size.
    bool files = false;
    // A descriptor for reading cannot be made writable; see Extent::descriptor().
    bool read_only_exports = false;
    bool pins = false;              // register_host_memory() has an effect
    bool streams = false;           // make_streams() returns streams
    bool knows_free_bytes = false;  // Device::free_bytes() has a value
};

class Copier;
class Device;
class Extent;
class FabricMaker;

// Free and used bytes of a device. Safe from any thread.
class Budget {
public:
    explicit Budget(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}
    // What is used stays, even beyond the new capacity.
    void set_capacity(uint64_t bytes) { capacity_.store(bytes, std::memory_order_relaxed); }
    bool take(uint64_t bytes);
    void give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
    // Counts bytes that are already used, even beyond the limit.
    void note(uint64_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
    uint64_t used() const { return used_.load(std::memory_order_relaxed); }
    uint64_t capacity() const { return capacity_.load(std::memory_order_relaxed); }

private:
    std::atomic<uint64_t> capacity_;
    std::atomic<uint64_t> used_{0};
};

struct FileStatus {
    uint64_t size_bytes = 0;
    uint64_t allocated_bytes = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
};

using SharedFd = std::shared_ptr<const UniqueFd>;

// Extents may also be files: resizable in place, and usable by the kernel directly. Other writers may resize them too,
// so their bytes are accessed by system calls only. Safe from any thread, if not said otherwise.
class ExtentFile {
public:
    virtual ~ExtentFile() = default;
    // Files are opened on demand: the descriptor may be closed when the result is destroyed.
    virtual Result<SharedFd> open() = 0;
    // From now on the file outlives the process under that key, for Device::restore_file(). False: the file has no
    // name, and its descriptor must be kept. Called before other threads use the file.
    virtual Result<bool> keep(uint64_t key) = 0;
    // The descriptor that must be kept; -1: the file has a name.
    virtual int held_fd() const = 0;
    // The file ends with the extent, although it was kept. Called when no other thread uses the file.
    virtual void discard() = 0;
    // The kernel's current values. Updates the budget.
    virtual Result<FileStatus> status() = 0;
    // Added bytes are zeros and allocated: a lack of memory gives ENOSPC here, not at the first access.
    virtual Status resize(uint64_t size_bytes) = 0;
    // Maps at least the first size() bytes; bytes beyond the end of the file are not accessible. Another process may
    // shorten the file at any time, so only system calls and guarded_copy() may access the mapping.
    virtual Result<std::shared_ptr<Mapping>> mapping() = 0;
    // Sets the times that the kernel uses when it reads or writes the file itself.
    virtual Status set_times(int64_t accessed_ns, int64_t modified_ns) = 0;
    // As fallocate(2).
    virtual Status allocate(int mode, uint64_t offset, uint64_t bytes) = 0;
    // Returns its present bytes to the budget when it is destroyed.
    virtual void charge_to(std::shared_ptr<Budget> budget, uint64_t charged_bytes) = 0;
};

// Destroying it unmaps and releases the memory in this process; the memory itself lives while any process holds it.
// Copies and fills may be called from any thread, and return when they are complete.
class Extent {
public:
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;
    virtual ~Extent();

    // A device address on a GPU, an ordinary address on host.
    uint64_t address() const { return address_; }
    uint64_t size() const { return size_.load(std::memory_order_relaxed); }

    virtual Status copy_in(uint64_t offset, std::span<const std::byte> source) = 0;
    virtual Status copy_out(uint64_t offset, std::span<std::byte> destination) const = 0;
    virtual Status fill(uint64_t offset, uint64_t bytes, uint8_t value) = 0;
    // Copies from another extent; without host memory in between if the device can.
    virtual Status copy_from(uint64_t offset, const Extent& source, uint64_t source_offset, uint64_t bytes);

    // The same, ordered by a stream of the caller (on CUDA a CUstream; null is the default one). They may return before
    // the copy is complete; finish() waits for that stream only.
    virtual Status begin_copy_in(uint64_t offset, std::span<const std::byte> source, void* stream);
    virtual Status begin_copy_out(uint64_t offset, std::span<std::byte> destination, void* stream) const;
    virtual Status finish(void* stream) const;

    // The CPU can access it at address(). Otherwise copies are the only way.
    virtual bool is_host_memory() const { return true; }
    // Null: fixed size.
    virtual ExtentFile* file() { return nullptr; }
    // Null: ordinary memory, which needs none. Valid while the device exists.
    virtual Copier* copier() { return nullptr; }

    // A descriptor that another process can import, made on the first call and owned by the extent. Access::read
    // returns a descriptor that cannot be made writable if the device supports it (host), otherwise an ordinary one.
    // Imported extents have none (a driver exports only its own allocations) unless keep_descriptor() set one. Not
    // thread-safe, unlike the other calls.
    virtual Result<int> descriptor(Access access) = 0;
    // Imports do not keep their descriptor by default: a client may map thousands of extents.
    void keep_descriptor(UniqueFd fd) { kept_ = std::move(fd); }
    // The descriptor that keeps the memory alive in another process, for restore(). -1: none is needed, see
    // ExtentFile::keep().
    Result<int> descriptor_for_keeper() { return file() != nullptr ? file()->held_fd() : descriptor(Access::write); }
    // A copy for the caller. Files have these only.
    virtual Result<UniqueFd> export_fd(Access access) { return UniqueFd::clone(TRY(descriptor(access))); }
    virtual Result<FabricHandle> export_fabric() const;
    // The fabric handle that outlives this process, for restore(); null: none.
    virtual const FabricHandle* lasting_handle() const { return nullptr; }
    // export_fabric() returns a handle. It does not if the process that allocated the memory has ended: a driver makes
    // no handles for imported memory, and existing ones end with that process.
    virtual bool has_fabric_handle() const { return false; }
    virtual Result<UniqueFd> export_dmabuf() const;
    virtual Result<IpcExport> export_ipc() const;
    // Waits for queued work on the memory, see gshm_sync().
    virtual Status sync() const { return {}; }
    // Makes the memory accessible to another device at the same address.
    virtual Status map_peer(Device& peer);

    // Runs when the extent is destroyed, after its memory is released; used by adaptors.
    void on_release(std::function<void()> hook) { release_hooks_.push_back(std::move(hook)); }

protected:
    Extent(uint64_t address, uint64_t size) : address_(address), size_(size) {}
    // EINVAL unless [offset, offset + bytes) is inside.
    Status check_range(uint64_t offset, uint64_t bytes) const;
    Result<int> kept_descriptor() const;
    void set_size(uint64_t size) { size_.store(size, std::memory_order_relaxed); }

private:
    uint64_t address_;
    std::atomic<uint64_t> size_;
    UniqueFd kept_;
    std::vector<std::function<void()>> release_hooks_;
};

struct AllocateOptions {
    bool compressible = false;
    bool resizable = false;       // a file, if DeviceInfo::files; otherwise ignored
    bool shared = false;          // its descriptor is needed at once
    bool lasting_handle = false;  // its fabric handle outlives this process, if Device::use_maker() was called
};

// Calls are safe from any thread.
class Device {
public:
    Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    virtual ~Device() = default;

    virtual const DeviceInfo& info() const = 0;

    // Slow or fallible initialisation, once, before gshmd offers the device. A device that fails is listed but refused.
    virtual Status start() { return {}; }

    // size_bytes is a nonzero multiple of the granularity; for a file any size, also 0. The memory is zeroed. ENOSPC:
    // the device is full.
    virtual Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) = 0;

    // size_bytes is the size of the whole exported extent. The caller keeps the descriptor.
    virtual Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) = 0;
    virtual Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) = 0;
    virtual Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                          Access access) = 0;
    // Takes over an extent that an earlier process of gshmd allocated, by the descriptor of
    // Extent::descriptor_for_keeper(), as if it were allocated here. size_bytes and options are the original ones, and
    // so is lasting_handle().
    virtual Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                                    const FabricHandle* handle = nullptr);
    // The same for a file that ExtentFile::keep() has given that key. ENOENT: there is none.
    virtual Result<std::unique_ptr<Extent>> restore_file(uint64_t key);
    // Called before any allocation or restore. Devices without fabric handles ignore it.
    virtual void use_maker(std::shared_ptr<FabricMaker>) {}
    // Bytes that the kernel uses for the device beyond those of its extents: it has not freed them yet, or a process
    // has just written them. A full device may have room soon.
    virtual uint64_t unaccounted_bytes() { return 0; }

    // At most that many bytes are used from now on; 0: as many as there are. Returns the capacity that follows.
    virtual uint64_t set_bound(uint64_t limit_bytes) {
        const uint64_t capacity = info().capacity_bytes;
        return limit_bytes == 0 ? capacity : std::min(capacity, limit_bytes);
    }

    // Bytes that the device itself has free, which other processes use too. UINT64_MAX: it does not say.
    virtual uint64_t free_bytes() { return UINT64_MAX; }

    // Makes copies between this memory and the device fast, until it is unregistered. A failure costs speed only.
    virtual Status register_host_memory(std::span<std::byte>) { return {}; }
    virtual void unregister_host_memory(std::span<std::byte>) {}

    // The streams that order its work; null: none. The device must outlive them.
    virtual Result<std::unique_ptr<Streams>> make_streams() { return nullptr; }
};

}  // namespace gshm::core

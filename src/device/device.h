// A device is where bytes live; an extent is one physical allocation of it, mapped into this process.
// The interface is all that the store and the daemon know; host.h and cuda.h implement it, kinds.h lists who does.
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
#include "device/queues.h"

namespace gshm {

enum class Access { read, write };

// The same bits as GSHM_HANDLE_... in gshm.h.
enum HandleKind : uint32_t { kHandlePosixFd = 1, kHandleFabric = 2, kHandleDmaBuf = 4 };

using FabricHandle = std::array<uint8_t, 64>;
using IpcHandle = std::array<uint8_t, 64>;

// The handle stands for the whole allocation that the extent is in.
struct IpcExport {
    IpcHandle handle = {};
    uint64_t allocation_bytes = 0;
    uint64_t offset = 0;  // of the extent in it
};

struct DeviceInfo {
    std::string name;   // "host", "cuda:0" (this process's ordinal): its kind, and which if there may be several
    std::string uuid;   // what it is called between processes; empty for host
    std::string model;
    uint64_t capacity_bytes = 0;
    uint64_t granularity_bytes = 0;  // extents are multiples of this
    uint32_t handle_kinds = 0;
    bool compressible = false;
    std::string pci_bus_id;  // "0000:1b:00.0", as in /sys/bus/pci/devices; empty where there is none
    int numa_node = -1;      // that the device is next to; -1: not known, or there is but one
    // Extents that are asked for as resizable are files of the kernel's, of exactly the size asked for.
    bool files = false;
    // A descriptor for reading cannot be made writable; see Extent::descriptor().
    bool read_only_exports = false;
    bool pins = false;  // register_host_memory() does something
    bool queues = false;  // make_queues() makes some
};

class Copier;
class Device;
class Extent;
class FabricMaker;

// Bytes that may still be taken of a device, and were. Safe from any thread.
class Budget {
public:
    explicit Budget(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}
    bool take(uint64_t bytes);
    void give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
    // What has been taken already, whether there was room or not.
    void note(uint64_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
    uint64_t used() const { return used_.load(std::memory_order_relaxed); }
    uint64_t capacity() const { return capacity_; }

private:
    uint64_t capacity_;
    std::atomic<uint64_t> used_{0};
};

struct FileStatus {
    uint64_t size_bytes = 0;
    uint64_t allocated_bytes = 0;
    int64_t accessed_ns = 0;
    int64_t modified_ns = 0;
};

// What some extents are besides: a file that changes its size in place, and that the kernel can be handed to read and
// write by itself. Others who write to it may change its size too, so nothing but system calls may touch its bytes.
// Safe from any thread.
class ExtentFile {
public:
    virtual ~ExtentFile() = default;
    virtual int fd() const = 0;
    // As the kernel has it now. Brings the budget up to date with it.
    virtual Result<FileStatus> status() = 0;
    // Bytes that are added are zeros, and are there: ENOSPC now, not when they are touched.
    virtual Status resize(uint64_t size_bytes) = 0;
    // Memory that is its first size() bytes, or more: what lies beyond its end is not there. Somebody else may make it
    // shorter any time, so only system calls and guarded_copy() may touch it.
    virtual Result<std::shared_ptr<Mapping>> mapping() = 0;
    // So that the kernel judges by them when it reads or writes it by itself.
    virtual Status set_times(int64_t accessed_ns, int64_t modified_ns) = 0;
    // As fallocate(2).
    virtual Status allocate(int mode, uint64_t offset, uint64_t bytes) = 0;
    // Its bytes so far are given back to the budget with it.
    virtual void charge_to(std::shared_ptr<Budget> budget, uint64_t charged_bytes) = 0;
};

// Destroying it unmaps and releases this process's share; the memory itself lives while any process has one.
// Copies and fills may be called from any thread, and return when the bytes are in place.
class Extent {
public:
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;
    virtual ~Extent();

    // Device address on a GPU, ordinary address on host.
    uint64_t address() const { return address_; }
    uint64_t size() const { return size_.load(std::memory_order_relaxed); }

    virtual Status copy_in(uint64_t offset, std::span<const std::byte> source) = 0;
    virtual Status copy_out(uint64_t offset, std::span<std::byte> destination) const = 0;
    virtual Status fill(uint64_t offset, uint64_t bytes, uint8_t value) = 0;
    // From another extent; without a way through host memory where the device can.
    virtual Status copy_from(uint64_t offset, const Extent& source, uint64_t source_offset, uint64_t bytes);

    // The same in the order of a queue of the caller's, of the type that the device has for them (on CUDA a stream); null
    // is its default one. They may return before the bytes are in place; finish() waits for what is on that queue, and for
    // nothing else.
    virtual Status begin_copy_in(uint64_t offset, std::span<const std::byte> source, void* queue);
    virtual Status begin_copy_out(uint64_t offset, std::span<std::byte> destination, void* queue) const;
    virtual Status finish(void* queue) const;

    // The CPU reads and writes it at address(). Else copies are the only way.
    virtual bool is_host_memory() const { return true; }
    // Null: its size is fixed.
    virtual ExtentFile* file() { return nullptr; }
    // Null: ordinary memory, that needs none. Lives as long as the device.
    virtual Copier* copier() { return nullptr; }

    // A descriptor that another process can import, made at the first call and kept: it stays the extent's. Access::read
    // gives one that cannot be made writable where the device can tell the difference (host), else an ordinary one.
    // An imported extent has none (a driver exports only what it has created) unless keep_descriptor() gave it one.
    // The one call that is for a single thread at a time.
    virtual Result<int> descriptor(Access access) = 0;
    // Imports do not hold on to what they were imported from: a client may map thousands of extents.
    void keep_descriptor(UniqueFd fd) { kept_ = std::move(fd); }
    // The descriptor that keeps the memory alive while another process holds it, and that restore() takes.
    Result<int> keepsake() { return file() != nullptr ? file()->fd() : descriptor(Access::write); }
    // A copy of it, the caller's.
    Result<UniqueFd> export_fd(Access access) { return UniqueFd::clone(TRY(descriptor(access))); }
    virtual Result<FabricHandle> export_fabric() const;
    // The fabric handle that outlives this process, for restore(); null: it has none.
    virtual const FabricHandle* lasting_handle() const { return nullptr; }
    // export_fabric() gives a handle. It does not where the process that made the memory has ended: a driver makes no
    // handles of memory that was imported, and those of the maker end with it.
    virtual bool has_fabric_handle() const { return false; }
    virtual Result<UniqueFd> export_dmabuf() const;
    virtual Result<IpcExport> export_ipc() const;
    // Waits for what the device was asked to do with it so far, as gshm_sync() says.
    virtual Status sync() const { return {}; }
    // Lets a further device reach the memory at the same address.
    virtual Status map_peer(Device& peer);

    // Runs when the extent is destroyed, after its memory is released; how adaptors learn of it.
    void on_release(std::function<void()> hook) { release_hooks_.push_back(std::move(hook)); }

protected:
    Extent(uint64_t address, uint64_t size) : address_(address), size_(size) {}
    // EINVAL unless [offset, offset + bytes) lies inside.
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
    bool resizable = false;  // a file, where DeviceInfo::files; else of no meaning
    bool shared = false;     // its descriptor will be asked for at once
    bool lasting_handle = false;  // its fabric handle outlives this process, where Device::use_maker() was called
};

// Calls are safe from any thread.
class Device {
public:
    Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    virtual ~Device() = default;

    virtual const DeviceInfo& info() const = 0;

    // What takes time and may fail, once, before gshmd offers it. One that fails is there, but refused.
    virtual Status start() { return {}; }

    // size_bytes is a nonzero multiple of the granularity; any size, 0 too, for a file. The memory is zero. ENOSPC when
    // the device is full.
    virtual Result<std::unique_ptr<Extent>> allocate(uint64_t size_bytes, const AllocateOptions& options) = 0;

    // size_bytes is the size of the whole exported extent. The descriptor stays the caller's.
    virtual Result<std::unique_ptr<Extent>> import_fd(int fd, uint64_t size_bytes, Access access) = 0;
    virtual Result<std::unique_ptr<Extent>> import_dmabuf(int fd, uint64_t size_bytes, Access access) = 0;
    virtual Result<std::unique_ptr<Extent>> import_fabric(const FabricHandle& handle, uint64_t size_bytes,
                                                          Access access) = 0;
    // Takes up an extent that an earlier process of ours has allocated, by what Extent::keepsake() gave: as if it had
    // been allocated here. size_bytes and options as they were then, and its lasting_handle().
    virtual Result<std::unique_ptr<Extent>> restore(UniqueFd fd, uint64_t size_bytes, const AllocateOptions& options,
                                                    const FabricHandle* handle = nullptr);
    // Before anything is allocated or restored. A device without fabric handles has no use for it.
    virtual void use_maker(std::shared_ptr<FabricMaker>) {}

    // Makes copies between this memory and the device fast. Lasts until unregister; failing costs speed only.
    virtual Status register_host_memory(std::span<std::byte>) { return {}; }
    virtual void unregister_host_memory(std::span<std::byte>) {}

    // What orders its work; null: it has no queues. The device must outlive it.
    virtual Result<std::unique_ptr<Queues>> make_queues() { return nullptr; }
};

}  // namespace gshm

// The state behind an hf3fs_iov.
#pragma once

#include <array>
#include <hf3fs_usrbio_gdr.h>
#include <optional>

#include "daemon.h"

namespace gshm::usrbio {

using Id = std::array<uint8_t, 16>;

class Iov {
public:
    // The memory; of a daemon or, without one, of the caller.
    Object object;
    std::shared_ptr<Daemon> daemon;
    // The name that others find it by; empty: none, or made by another process, which removes it.
    std::string name;
    Object publication;                              // for wrapped memory: the object that describes it to others
    std::optional<hf3fs_gpu_ipc_handle_t> imported;  // for memory of another process: its handle
    int gpu = -1;                                    // -1: host memory
    Id id = {};
    size_t size = 0;

    // From a struct filled in by one of the calls; null: not filled in, or destroyed. For wrapped memory also null if
    // the memory is gone.
    static std::shared_ptr<Iov> of(const hf3fs_iov* iov);
    // Fills in the caller's struct, which then owns the handle.
    static void hand_over(std::unique_ptr<Iov> made, hf3fs_iov* iov, const char* mount_point, size_t block_size,
                          int numa);
    // The same for memory that needs no name. The struct owns nothing, since programs of 3FS do not destroy it; wraps.h.
    static void hand_over_wrap(std::unique_ptr<Iov> made, hf3fs_iov* iov, const char* mount_point, size_t block_size,
                               int numa);
    static void destroy(hf3fs_iov* iov);
    // Removes its id.
    void unlink();

    ~Iov();

private:
    void remove_name();

    static constexpr uint64_t kMagic = 0x766f695f6d687367;  // "gshm_iov"
    uint64_t magic_ = kMagic;
};

// Checks the arguments common to all calls.
Result<void> check_iov_arguments(const hf3fs_iov* iov, const char* mount_point, size_t size);
Id to_id(const uint8_t id[16]);
Id make_id();
// In a folder of the user, so that users do not own each other's objects. The folder is removed with its last entry.
std::string name_of(const Id& id);

// A zeroed object with a new id, which ends with this process.
Result<std::unique_ptr<Iov>> create_iov(std::shared_ptr<Daemon> daemon, size_t size, const std::string& device);
// Preferred node for the pages.
void prefer_node(void* memory, size_t size, int node);

}  // namespace gshm::usrbio

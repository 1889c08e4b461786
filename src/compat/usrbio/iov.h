// What an hf3fs_iov's handle stands for.
#pragma once

#include <array>
#include <hf3fs_usrbio_gdr.h>
#include <optional>

#include "daemon.h"

namespace gshm::usrbio {

using Id = std::array<uint8_t, 16>;

class Iov {
public:
    // The memory; of a daemon, or (without one) the caller's own.
    Object object;
    std::shared_ptr<Daemon> daemon;
    // What others find it by; empty: nothing, or it was made elsewhere and is not ours to remove.
    std::string name;
    Object publication;  // of wrapped memory: the object of that name, which says how to reach it
    std::optional<hf3fs_gpu_ipc_handle_t> imported;  // of another process's own memory: how it was reached
    int gpu = -1;                                    // -1: host memory
    Id id = {};
    size_t size = 0;

    // Of a struct that one of the calls has filled in; null: it has not, or was destroyed.
    static Iov* of(const hf3fs_iov* iov);
    // Fills in the caller's struct, which has the handle from then on.
    static void hand_over(std::unique_ptr<Iov> made, hf3fs_iov* iov, const char* mount_point, size_t block_size,
                          int numa);
    static void destroy(hf3fs_iov* iov);
    // From now on its id leads nowhere.
    void unlink();

    ~Iov();

private:
    void remove_name();

    static constexpr uint64_t kMagic = 0x766f695f6d687367;  // "gshm_iov"
    uint64_t magic_ = kMagic;
};

// The arguments that all of the calls have.
Result<void> check_iov_arguments(const hf3fs_iov* iov, const char* mount_point, size_t size);
Id to_id(const uint8_t id[16]);
Id make_id();
// In a folder of the user's, so that one user does not own what another needs. It goes with the last in it.
std::string name_of(const Id& id);

// An object of zeros that goes with this process, with an id of its own.
Result<std::unique_ptr<Iov>> create_iov(std::shared_ptr<Daemon> daemon, size_t size, const std::string& device);
// Where the pages shall be; a wish, and nothing else depends on it.
void prefer_node(void* memory, size_t size, int node);

}  // namespace gshm::usrbio

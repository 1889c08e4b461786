// Sharing of GPU memory between processes: by handle, and by the id of wrapped memory.
#pragma once

#include "gpu_handle.h"

namespace gshm::usrbio {

Result<hf3fs_gpu_ipc_handle_t> export_iov(Iov& iov);
Result<std::unique_ptr<Iov>> import_iov(const hf3fs_gpu_ipc_handle_t& handle, std::shared_ptr<Daemon> daemon);

// Publishes wrapped memory under its id, for the lifetime of this process. Memory that no other process can open is
// skipped. EEXIST: the id exists.
Result<void> publish(Iov& iov);
// Opens created or published memory by its id.
Result<std::unique_ptr<Iov>> open_iov(std::shared_ptr<Daemon> daemon, const Id& id, int gpu);

}  // namespace gshm::usrbio

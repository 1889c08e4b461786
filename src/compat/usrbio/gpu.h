// GPU memory between processes: by handle, and by the id that it was wrapped with.
#pragma once

#include "gpu_handle.h"

namespace gshm::usrbio {

Result<hf3fs_gpu_ipc_handle_t> export_iov(Iov& iov);
Result<std::unique_ptr<Iov>> import_iov(const hf3fs_gpu_ipc_handle_t& handle, std::shared_ptr<Daemon> daemon);

// Wrapped memory becomes known by its id, as long as this process lives. Memory that no other process could open is
// left out. EEXIST if the id is taken.
Result<void> publish(Iov& iov);
// What has that id: created, or published.
Result<std::unique_ptr<Iov>> open_iov(std::shared_ptr<Daemon> daemon, const Id& id, int gpu);

}  // namespace gshm::usrbio

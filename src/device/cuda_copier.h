// The copier of GPU memory: one stream per direction, so that copies run in both directions at once, and beside other
// streams of the process.
#pragma once

#include <memory>
#include <mutex>

#include "cuda/driver.h"
#include "device/copier.h"

namespace gshm::core {

class CudaCopier final : public Copier {
public:
    // For memory accessible in this context, which must outlive the copier.
    static Result<std::unique_ptr<CudaCopier>> create(const cuda::Driver& driver, cuda::CUcontext context);
    // Waits for started copies.
    ~CudaCopier() override;

    void copy_in(uint64_t address, const std::byte* source, size_t bytes, Done done) override;
    void copy_out(std::byte* destination, uint64_t address, size_t bytes, Done done) override;
    void fill(uint64_t address, size_t bytes, uint8_t value, Done done) override;
    bool with_context(const std::function<void()>& call) override;

private:
    class Lane;
    CudaCopier(const cuda::Driver& driver, cuda::CUcontext context, std::unique_ptr<Lane> in,
               std::unique_ptr<Lane> out);

    const cuda::Driver& driver_;
    cuda::CUcontext context_;
    std::unique_ptr<Lane> in_;
    std::unique_ptr<Lane> out_;
};

// A device's copier, made on first use: threads and streams have a cost. Shared by the device and its extents, which
// may outlive it.
class LazyCopier {
public:
    // Never null: if none can be made, a copier that fails every call with the reason.
    Copier* get(const cuda::Driver& driver, cuda::CUcontext context);
    // The context is about to be destroyed.
    void close();

private:
    std::mutex mutex_;  // guards all below
    bool closed_ = false;
    std::unique_ptr<Copier> copier_;
    std::unique_ptr<Copier> refusal_;
};

}  // namespace gshm::core

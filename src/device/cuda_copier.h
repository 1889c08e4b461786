// The copier of GPU memory: one stream in each direction, so that copies go on in both at once, and beside whatever the
// process does on other streams.
#pragma once

#include <memory>
#include <mutex>

#include "cuda/driver.h"
#include "device/copier.h"

namespace gshm {

class CudaCopier final : public Copier {
public:
    // For memory that can be reached in this context, which must live until the copier goes.
    static Result<std::unique_ptr<CudaCopier>> create(const cuda::Driver& driver, cuda::CUcontext context);
    // What was begun is waited for.
    ~CudaCopier() override;

    void copy_in(uint64_t address, const std::byte* source, size_t bytes, Done done) override;
    void copy_out(std::byte* destination, uint64_t address, size_t bytes, Done done) override;
    void fill(uint64_t address, size_t bytes, uint8_t value, Done done) override;
    bool with_context(const std::function<void()>& call) override;

private:
    class Lane;
    CudaCopier(const cuda::Driver& driver, cuda::CUcontext context, std::unique_ptr<Lane> in, std::unique_ptr<Lane> out);

    const cuda::Driver& driver_;
    cuda::CUcontext context_;
    std::unique_ptr<Lane> in_;
    std::unique_ptr<Lane> out_;
};

// A device's copier, made when it is first asked for: threads and streams cost something. Shared by the device and its
// extents, which may outlive it.
class LazyCopier {
public:
    // Never null: where none can be made, one that answers every call with the reason.
    Copier* get(const cuda::Driver& driver, cuda::CUcontext context);
    // The context is about to go.
    void close();

private:
    std::mutex mutex_;  // guards all below
    bool closed_ = false;
    std::unique_ptr<Copier> copier_;
    std::unique_ptr<Copier> refusal_;
};

}  // namespace gshm

#include <memory>

namespace c10::cuda::CUDACachingAllocator {
class CUDAAllocator {};
}  // namespace c10::cuda::CUDACachingAllocator

namespace {
using Allocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;
std::shared_ptr<Allocator> current;
}  // namespace

namespace torch::cuda::CUDAPluggableAllocator {
std::shared_ptr<Allocator> getCurrentAllocator() {
    return current;
}
}  // namespace torch::cuda::CUDAPluggableAllocator

// As torch.cuda.memory.change_current_allocator(), which cannot be undone in torch.
extern "C" void faketorch_change_current_allocator(bool pluggable) {
    current = pluggable ? std::make_shared<Allocator>() : nullptr;
}

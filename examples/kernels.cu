// The two kernels of test_client, compiled to PTX if nvcc is installed. kernels.ptx is the same for machines without
// nvcc: change both together. pattern.h defines the words. The loops use a grid stride, so any grid covers all words.

typedef unsigned int Word;
typedef unsigned long long Count;

__device__ static Word pattern_at(Count index) {
    return (static_cast<Word>(index) * 2 + 1337) ^ 0xDEADBEEFu;
}

extern "C" __global__ void fill_pattern(Word* words, Count count) {
    const Count stride = static_cast<Count>(gridDim.x) * blockDim.x;
    for (Count i = static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] = pattern_at(i);
}

// Adds to *mismatches the number of words that differ from fill_pattern.
extern "C" __global__ void check_pattern(const Word* words, Count count, Count* mismatches) {
    const Count stride = static_cast<Count>(gridDim.x) * blockDim.x;
    Count wrong = 0;
    for (Count i = static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
        if (words[i] != pattern_at(i)) ++wrong;
    if (wrong != 0) atomicAdd(mismatches, wrong);
}

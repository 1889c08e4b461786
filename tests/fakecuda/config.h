// fakecuda, a test double of NVIDIA's driver: its environment variables, read once at the first call.
#pragma once

#include <cstddef>
#include <string>

namespace fakecuda {

inline constexpr int kMaxDevices = 64;

struct Config {
    int devices = 1;                        // FAKECUDA_DEVICES: how many the machine has
    size_t memory_bytes = size_t{1} << 30;  // FAKECUDA_MEMORY: of each; K, M and G are understood
    size_t others_bytes = 0;                // FAKECUDA_OTHERS: of these, in use by other processes
    bool dmabuf = true;                     // FAKECUDA_DMABUF: export as dma-buf
    bool dmabuf_import = true;              // FAKECUDA_DMABUF_IMPORT: 0 refuses, as driver 580 on the H200 does
    bool compression = true;                // FAKECUDA_COMPRESSION
    bool peer = true;                       // FAKECUDA_PEER: devices reach each other's memory
    bool fabric = false;                    // FAKECUDA_FABRIC: as if the IMEX channel existed
    bool sticky_all = false;                // FAKECUDA_STICKY=all: a lost context takes the VMM calls with it
    unsigned copy_delay_us = 50;  // FAKECUDA_COPY_DELAY_US: of each copy on a stream that is not the default one
    std::string fail;             // FAKECUDA_FAIL: failures to inject, see faults.h
    std::string control;          // FAKECUDA_CONTROL: a file with more of them, read again as it changes
    std::string visible;          // CUDA_VISIBLE_DEVICES
    bool visible_set = false;
};

const Config& config();

// The present number, if the file FAKECUDA_CONTROL.others has one; else FAKECUDA_OTHERS.
size_t others_bytes();

// A mistake in the test itself: says so and aborts, so that no test passes because its knob was misspelt.
[[noreturn]] void die(const std::string& why);

}  // namespace fakecuda

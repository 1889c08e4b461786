# Writes the header kernel_images.h: PTX as string literals, nvcc's first if present.
#   cmake -DOUTPUT=kernel_images.h -DPORTABLE=kernels.ptx [-DNVCC=compiled.ptx] -P embed_kernels.cmake
cmake_minimum_required(VERSION 3.25)
set(entries "")
foreach(origin NVCC PORTABLE)
    if(NOT ${origin})
        continue()
    endif()
    set(name kernels.ptx)
    if(origin STREQUAL "NVCC")
        set(name nvcc)
    endif()
    file(READ "${${origin}}" ptx)
    string(APPEND entries "    {\"${name}\", R\"ptx(${ptx})ptx\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by embed_kernels.cmake.
#pragma once

struct KernelImage {
    const char* origin;
    const char* ptx;
};

inline constexpr KernelImage kKernelImages[] = {
${entries}};
")

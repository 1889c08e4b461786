# Compiler, linker and output folders. Needs GSHM_SANITIZE and GSHM_FUZZ.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON) # TRY is a GNU statement expression
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# Every program is one folder below the build folder (bin/, tests/, bench/), beside lib/, so that one relative path
# finds libgshm in the build folder and in a bundle.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
if(NOT CMAKE_INSTALL_LIBDIR STREQUAL lib) # such as lib/x86_64-linux-gnu
    list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

# Designated initialisers omit members that are zero on purpose.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")

if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Checks the lock annotations of base/: a violated GUARDED_BY is an error.
    add_compile_options(-Wthread-safety -Werror=thread-safety)
endif()

if(GSHM_SANITIZE)
    add_compile_options(-fsanitize=${GSHM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${GSHM_SANITIZE})
    if(GSHM_SANITIZE MATCHES undefined)
        # The vptr check reads memory through a pipe, and fails in a process without free descriptors.
        add_compile_options(-fno-sanitize=vptr)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        add_compile_options(-Wno-maybe-uninitialized) # false positives in instrumented code
    endif()
endif()
if(GSHM_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "GSHM_FUZZ needs clang: libFuzzer is a part of it")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Faster linking and rebuilding, if the tools are installed.
find_program(GSHM_MOLD mold)
if(GSHM_MOLD AND NOT CMAKE_CXX_FLAGS MATCHES "-fuse-ld")
    add_link_options(-fuse-ld=mold)
endif()
find_program(GSHM_CCACHE ccache)
if(GSHM_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${GSHM_CCACHE})
    # Needed for precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${GSHM_CCACHE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
    else()
        add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
    endif()
endif()

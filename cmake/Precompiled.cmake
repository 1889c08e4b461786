# Precompiled headers: two thirds of the compile time is parsing a few headers. The fuzz preset does not use them, so
# that it detects missing includes.
option(GSHM_PRECOMPILE "Precompile headers" ON)

# Not <filesystem>: its std::quoted() would be found instead of functions of that name.
set(core_headers <algorithm> <atomic> <chrono> <condition_variable> <cstring> <expected> <fstream>
    <functional> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map>
    <utility> <variant> <vector> <fmt/core.h>)

# gshm_headers(<name> PIC ON|OFF [OPTIONS option...] LINK lib... HEADERS header...): a set of headers for targets with
# the same compile options.
function(gshm_headers name)
    cmake_parse_arguments(SET "" "PIC" "OPTIONS;LINK;HEADERS" ${ARGN})
    if(NOT GSHM_PRECOMPILE)
        return()
    endif()
    set(source ${CMAKE_BINARY_DIR}/generated/${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "// What the headers are precompiled for has nothing in it.\n")
    add_library(${name} OBJECT ${source})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${SET_PIC})
    target_link_libraries(${name} PRIVATE ${SET_LINK})
    target_compile_options(${name} PRIVATE ${SET_OPTIONS})
    target_precompile_headers(${name} PRIVATE ${SET_HEADERS})
endfunction()

# gshm_use_headers(<target> <name>): makes the target use such a set.
function(gshm_use_headers target name)
    if(NOT TARGET ${name})
        return()
    endif()
    get_target_property(pic ${name} POSITION_INDEPENDENT_CODE)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ${pic}) # different options would disable it
    target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# Precompiled headers: two thirds of compiling is parsing the same few of them. The clang preset does without, so that a
# file that does not include what it uses is found there.
option(GSHM_PRECOMPILE "Precompile headers" ON)

# Not <filesystem>: it has std::quoted(), which would be found in place of functions of that name.
set(core_headers <algorithm> <atomic> <chrono> <condition_variable> <cstring> <expected> <fstream>
    <functional> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map>
    <utility> <variant> <vector> <fmt/core.h>)

# gshm_headers(<name> PIC ON|OFF [OPTIONS option...] LINK lib... HEADERS header...): a set of them, for targets that are
# compiled in the same way.
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

# gshm_use_headers(<target> <name>): has the target use such a set.
function(gshm_use_headers target name)
    if(NOT TARGET ${name})
        return()
    endif()
    get_target_property(pic ${name} POSITION_INDEPENDENT_CODE)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ${pic}) # a difference would make them useless
    target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# gshm_part(<dir> [TARGET name] [EXCLUDE file...] LINK lib...)
# Builds one folder of src/ as a static library, gshm_<dir> or TARGET. Its FlatBuffers schemas are compiled and included
# as "<schema>_generated.h".
function(gshm_part dir)
    cmake_parse_arguments(PART "" "TARGET" "EXCLUDE;LINK" ${ARGN})
    set(target gshm_${dir})
    if(PART_TARGET)
        set(target ${PART_TARGET})
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*.cc)
    foreach(file ${PART_EXCLUDE})
        list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/src/${dir}/${file})
    endforeach()
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${target} PUBLIC ${PART_LINK})
    gshm_use_headers(${target} gshm_headers)

    file(GLOB schemas CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*.fbs)
    foreach(schema ${schemas})
        gshm_schema(${target} ${schema})
    endforeach()
endfunction()

# gshm_public_headers(<target> <folder> <installed>): headers of a library, in the source tree and below the installed
# include folder.
function(gshm_public_headers target folder installed)
    target_include_directories(${target} PUBLIC
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/${folder}>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/${installed}>)
endfunction()

function(gshm_schema target schema)
    set(folder ${CMAKE_BINARY_DIR}/generated/${target})
    cmake_path(GET schema STEM name)
    set(header ${folder}/${name}_generated.h)
    add_custom_command(
        OUTPUT ${header}
        COMMAND ${GSHM_FLATC} --cpp --cpp-std c++17 --scoped-enums -o ${folder} ${schema}
        DEPENDS ${schema}
        COMMENT "flatc ${name}.fbs"
        VERBATIM)
    add_custom_target(${target}_${name}_schema DEPENDS ${header})
    add_dependencies(${target} ${target}_${name}_schema)
    target_include_directories(${target} SYSTEM PUBLIC ${folder})
endfunction()

# gshm_program(<target> [NAME file name] [FOLDER below the build folder] SOURCES file... LINK lib...)
# Without sources it does nothing: a folder of tests may be empty.
function(gshm_program target)
    cmake_parse_arguments(PROGRAM "" "NAME;FOLDER" "SOURCES;LINK" ${ARGN})
    if(NOT PROGRAM_SOURCES)
        return()
    endif()
    add_executable(${target} ${PROGRAM_SOURCES})
    target_link_libraries(${target} PRIVATE ${PROGRAM_LINK})
    if(GSHM_SANITIZE)
        # compiles in a third of the time; the code under test is in libraries
        target_compile_options(${target} PRIVATE -O0)
    endif()
    if(PROGRAM_NAME)
        set_target_properties(${target} PROPERTIES OUTPUT_NAME ${PROGRAM_NAME})
    endif()
    if(PROGRAM_FOLDER)
        set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${PROGRAM_FOLDER})
    endif()
endfunction()

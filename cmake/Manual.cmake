# The manual pages, BUILD/man, and the completions of gshmd, BUILD/completions. They are made by a program of the build that has the command line of gshm and the options of
# gshmd; docs/ and the public header are read by it. A sanitized build has no pages: they would be the same.
if(GSHM_SANITIZE OR CMAKE_CROSSCOMPILING)
    message(STATUS "manual pages: not built, by a sanitizer or for another machine")
    return()
endif()
find_library(GSHM_CMARK cmark-gfm REQUIRED)
find_library(GSHM_CMARK_EXTENSIONS cmark-gfm-extensions REQUIRED)

file(GLOB manual_sources CONFIGURE_DEPENDS src/manual/*.cc)
gshm_program(gshm_manual NAME gshm-manual FOLDER generated SOURCES ${manual_sources}
    LINK gshm_cli_lib gshm_daemon_lib ${GSHM_CMARK_EXTENSIONS} ${GSHM_CMARK})
target_compile_definitions(gshm_manual PRIVATE GSHM_DOC_FOLDER="${CMAKE_INSTALL_FULL_DOCDIR}")
gshm_use_headers(gshm_manual gshm_program_headers)

set(manual_stamp ${CMAKE_BINARY_DIR}/generated/manual.stamp)
add_custom_command(
    OUTPUT ${manual_stamp}
    COMMAND gshm_manual ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}
    COMMAND ${CMAKE_COMMAND} -E touch ${manual_stamp}
    DEPENDS gshm_manual docs/cli.md docs/configuration.md include/gshm/gshm.h packaging/mount.fuse.gshm
    COMMENT "manual pages and completions"
    VERBATIM)
add_custom_target(manual ALL DEPENDS ${manual_stamp})

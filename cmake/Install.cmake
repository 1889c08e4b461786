# cmake --install BUILD [--prefix P]. The installed tree can be moved, except for the systemd unit, which has absolute
# paths. DESTDIR works.
install(TARGETS gshmd gshm_cli RUNTIME)
install(TARGETS gshm_keeper gshm_maker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gshm)

set_target_properties(gshm_usrbio PROPERTIES EXPORT_NAME usrbio)
set_target_properties(gshm_vineyard PROPERTIES EXPORT_NAME vineyard)
install(TARGETS gshm gshm_usrbio gshm_vineyard EXPORT gshm LIBRARY)
install(DIRECTORY include/gshm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# A folder of their own: the names in it are those of other projects.
install(DIRECTORY include/compat/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gshm/compat)

# ---- find_package(gshm): gshm::gshm, gshm::usrbio, gshm::vineyard ----
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/gshm)
install(EXPORT gshm NAMESPACE gshm:: FILE gshmTargets.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/gshmConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/gshmConfig.cmake
    INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# Programs of an older 0.x work with this one: docs/compatibility.md.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/gshmConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/gshmConfig.cmake ${CMAKE_BINARY_DIR}/generated/gshmConfigVersion.cmake
    DESTINATION ${package_folder})

# ---- pkg-config: gshm, gshm-usrbio, gshm-vineyard ----
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(name LIB INCLUDE)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${name}DIR}")
        message(FATAL_ERROR "CMAKE_INSTALL_${name}DIR must be relative to the prefix")
    endif()
endforeach()
file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${pkgconfig_folder} /prefix)
# gshm_pkgconfig(<name> <library> <installed include folder> <description> [module that it needs])
function(gshm_pkgconfig name library include description)
    set(requires ${ARGN})
    configure_file(cmake/pkgconfig.in ${CMAKE_BINARY_DIR}/generated/${name}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/generated/${name}.pc DESTINATION ${pkgconfig_folder})
endfunction()
gshm_pkgconfig(gshm gshm ${CMAKE_INSTALL_INCLUDEDIR} "/dev/shm for GPU memory")
gshm_pkgconfig(gshm-usrbio gshm_usrbio ${CMAKE_INSTALL_INCLUDEDIR}/gshm/compat "The usrbio interface of 3FS over gshm" gshm)
gshm_pkgconfig(gshm-vineyard gshm_vineyard ${CMAKE_INSTALL_INCLUDEDIR}/gshm/compat "GPU buffers of vineyard over gshm" gshm)

# ---- mount -t fuse.gshm ----
install(PROGRAMS packaging/mount.fuse.gshm DESTINATION ${CMAKE_INSTALL_SBINDIR})

# ---- systemd; the prefix is known when it is installed ----
install(CODE "
    file(READ \"${CMAKE_SOURCE_DIR}/packaging/gshmd.service\" unit)
    string(REPLACE \"/usr/bin/\" \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/\" unit \"\${unit}\")
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")
    message(STATUS \"Installing: \${folder}/gshmd.service\")
    file(WRITE \"\${folder}/gshmd.service\" \"\${unit}\")
")

# ---- documentation ----
if(TARGET manual)
    foreach(section 1 3 5 8)
        install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
            FILES_MATCHING PATTERN "*.${section}")
    endforeach()
    install(FILES ${CMAKE_BINARY_DIR}/completions/gshmd.bash RENAME gshmd
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${CMAKE_BINARY_DIR}/completions/_gshmd DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${CMAKE_BINARY_DIR}/completions/gshmd.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(FILES packaging/completions/gshm.bash RENAME gshm DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES packaging/completions/_gshm DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES packaging/completions/gshm.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES README.md CHANGELOG.md LICENSE SECURITY.md packaging/gshm.toml DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY packaging/prometheus DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS)

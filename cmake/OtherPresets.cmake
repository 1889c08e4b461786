# Included by tests/. Adds the checks of the asan and clang presets to this build's ctest, so that one run and one
# summary cover all. Their builds are entries too (quick after `./dev test` has built them). Without a usable clang its
# build is skipped.

set(asan_dir ${CMAKE_SOURCE_DIR}/build-asan)
set(clang_dir ${CMAKE_SOURCE_DIR}/build-clang)

function(preset_build preset)
    add_test(NAME ${preset}.build COMMAND ${CMAKE_SOURCE_DIR}/dev build ${preset})
    set_tests_properties(${preset}.build PROPERTIES
        FIXTURES_SETUP ${preset}
        SKIP_RETURN_CODE 77
        RUN_SERIAL ON
        TIMEOUT 1500)
endfunction()

# preset_test(<preset> <test> COMMAND...)
function(preset_test preset test)
    add_test(NAME ${preset}.${test} COMMAND ${ARGN})
    set_tests_properties(${preset}.${test} PROPERTIES
        FIXTURES_REQUIRED ${preset}
        SKIP_RETURN_CODE 77
        TIMEOUT 1500
        COST 100 # the longest run first
        ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
endfunction()

preset_build(asan)
foreach(folder unit conformance sim)
    if(TARGET ${folder}_tests)
        preset_test(asan ${folder} ${asan_dir}/tests/${folder}_tests --gtest_brief=1)
    endif()
endforeach()
# These tests fork, which a sanitizer does not survive with threads of other tests. Long tests that repeat others in a
# variant run in the ordinary build only.
set(long "PosixTest.*/(through|user)|TwentyKills/(through|cuda)|ReadingAHole|FormerOwner/(passthrough|through|user)|Reuse\\.")
foreach(folder integration mount compat regress)
    if(TARGET ${folder}_tests)
        preset_test(asan ${folder} ${CMAKE_SOURCE_DIR}/cmake/one-by-one --but ${long} ${asan_dir}/tests/${folder}_tests
            --gtest_brief=1)
    endif()
endforeach()
abi_test_entries(asan. ${asan_dir})
set_tests_properties(${abi_tests} PROPERTIES FIXTURES_REQUIRED asan)

preset_build(clang) # -Werror=thread-safety: an unlocked access to a GUARDED_BY member does not compile
foreach(source ${fuzz_sources})
    cmake_path(GET source STEM name)
    preset_test(asan ${name} ${asan_dir}/tests/${name} --runs ${${name}_runs} ${${name}_corpus})
    preset_test(clang ${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/run ${clang_dir}/tests/${name}
        ${${name}_clang_runs} ${${name}_corpus})
endforeach()

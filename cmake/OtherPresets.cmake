# Included by tests/. Adds the checks of the asan and tsan presets to this build's ctest, so that one run and one
# summary cover all. Their builds are entries too (quick after `./dev test` has built them).

set(asan_dir ${CMAKE_SOURCE_DIR}/build-asan)
set(tsan_dir ${CMAKE_SOURCE_DIR}/build-tsan)
set(sanitized ${CMAKE_SOURCE_DIR}/cmake/sanitized)
set(one_by_one ${CMAKE_SOURCE_DIR}/cmake/one-by-one)

function(preset_build preset)
    add_test(NAME ${preset}.build COMMAND ${CMAKE_SOURCE_DIR}/dev build ${preset})
    set_tests_properties(${preset}.build PROPERTIES
        FIXTURES_SETUP ${preset}
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
        COST 100) # the longest run first
endfunction()

# preset_parts(<preset> <folder> <number of parts> OPTION...): the tests of a folder, each in a process of its own.
# These tests fork, which a sanitizer does not survive with threads of other tests. The parts run at the same time.
function(preset_parts preset folder parts)
    foreach(part RANGE 1 ${parts})
        preset_test(${preset} ${folder}.${part} ${one_by_one} ${ARGN} --part ${part}/${parts}
            ${${preset}_dir}/tests/${folder}_tests --gtest_brief=1)
    endforeach()
endfunction()

preset_build(asan)
foreach(folder unit conformance sim)
    preset_test(asan ${folder} ${sanitized} ${asan_dir}/tests/${folder}_tests --gtest_brief=1)
endforeach()
# Long tests that repeat others in a variant run in the ordinary build only.
set(long "PosixTest.*/(through|user)|TwentyKills/(through|cuda)|ReadingAHole|FormerOwner/(passthrough|through|user)|Reuse\\.")
# ThePinBudget...: many forks one after the other. A child sometimes inherits a locked allocator of AddressSanitizer.
preset_parts(asan integration 4 --but "${long}|ThePinBudgetIsExactWhenProcessesRace")
preset_parts(asan mount 4 --but ${long})
preset_parts(asan regress 2 --but ${long})
preset_parts(asan compat 1 --but ${long})
abi_test_entries(asan. ${asan_dir})
set_tests_properties(${abi_tests} PROPERTIES FIXTURES_REQUIRED asan)

# Compiled by clang, this build also checks the lock annotations: an unlocked access to a GUARDED_BY member is an error.
preset_build(tsan)
preset_test(tsan unit ${sanitized} ${tsan_dir}/tests/unit_tests --gtest_brief=1
    --gtest_filter=-PoolQueues.NobodyGets*:PoolTest.Fragmentation*) # long, and with one thread
# Of the rest, tests in which several clients or several threads of one use gshmd at the same time.
preset_parts(tsan integration 3 --only "Threads|SharedRing|ManyClients|ManyAtOnce|ManyWatches|OneVersion|WhileItIsRead|WakesWhoWaits|\
WaitsForNames|GoesOnWithTheNextDaemon|TransfersGoOn|ATakeover|AHostileRing|TakenOverTenTimes|CountsAndIsWaitedFor|\
CliGet.InterruptedAtRandom|CliPut.EverySize|CliPutOnCuda")
preset_parts(tsan compat 1 --only "Threads?[A-Z]")
# BeingSettled: the memory is free in the time that gshmd waits for it, which is too short for ThreadSanitizer.
preset_parts(tsan regress 1 --but "BeingSettled" --only "Space\\.|Waits|SnapshotOpen")
preset_parts(tsan mount 2 --only "BesideTruncating|(OneVersion.*|NoDeadlock|ChangesInFlight.*|OpensAndCloses.*|HearsWhat.*|\
ACopyGoesOn.*|InTheSameFolder)/(through|cuda)")
if(TARGET clients_bench)
    preset_test(tsan clients ${sanitized} ${CMAKE_COMMAND} -E env GSHM_BIN=${tsan_dir}/bin $<TARGET_FILE:clients_bench>
        --threads 4 --most 8 --seconds 0.5)
endif()

# libFuzzer searches in the tsan build, which is the one of clang. The inputs that it keeps are replayed and mutated with
# AddressSanitizer and UndefinedBehaviorSanitizer.
foreach(source ${fuzz_sources})
    cmake_path(GET source STEM name)
    set(learnt ${CMAKE_CURRENT_BINARY_DIR}/learnt/${name})
    file(MAKE_DIRECTORY ${learnt})
    preset_test(tsan ${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/run ${tsan_dir}/tests/${name} ${learnt}
        ${${name}_clang_runs} ${${name}_corpus})
    preset_test(asan ${name} ${asan_dir}/tests/${name} --runs ${${name}_runs} ${${name}_corpus} ${learnt})
    set_tests_properties(asan.${name} PROPERTIES DEPENDS tsan.${name})
endforeach()

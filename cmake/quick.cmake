# SDPA_QUICK_FLAGS: for code that runs for a moment or waits for a GPU (tests, tools), so that it is
# compiling it that costs. Sanitizer presets have levels of their own.
include_guard(GLOBAL)

set(SDPA_QUICK_FLAGS "")
if(SDPA_SANITIZER STREQUAL "none")
  set(SDPA_QUICK_FLAGS -O1)
endif()

# Several files of a target compiled as one, in presets that say so: most of a test's time is the headers
# that it shares with the next. Release builds compile every file on its own, so that each includes
# what it needs.
option(SDPA_UNITY "Compile tests and tools several files at a time" OFF)
function(sdpa_unity target files_at_a_time)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SDPA_UNITY}
                                             UNITY_BUILD_BATCH_SIZE ${files_at_a_time})
endfunction()

# Sanitizer builds: the whole host build is instrumented, except that under ThreadSanitizer the
# executor's runtime is not. It switches fibers and touches what belongs to other lanes, and tells
# ThreadSanitizer about both by itself (FP8_SDPA_TSAN=1).
#
#   sdpa_sanitize(<target> [RUNTIME])   RUNTIME: the executor's runtime
include_guard(GLOBAL)

if(SDPA_SANITIZER STREQUAL "address")
  set(SDPA_SANITIZER_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all
                           -fno-omit-frame-pointer)
elseif(SDPA_SANITIZER STREQUAL "thread")
  set(SDPA_SANITIZER_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
  add_compile_definitions(FP8_SDPA_TSAN=1)
elseif(SDPA_SANITIZER STREQUAL "none")
  set(SDPA_SANITIZER_FLAGS "")
else()
  message(FATAL_ERROR "SDPA_SANITIZER=${SDPA_SANITIZER}: it is none, address or thread")
endif()

if(NOT SDPA_SANITIZER STREQUAL "none" AND SDPA_CUDA)
  message(STATUS "fp8_sdpa: a sanitizer build is host only; device code is left out")
  set(SDPA_CUDA OFF)
endif()

function(sdpa_sanitize target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "RUNTIME" "" "")
  if(NOT SDPA_SANITIZER_FLAGS)
    return()
  endif()
  if(NOT (arg_RUNTIME AND SDPA_SANITIZER STREQUAL "thread"))
    target_compile_options(${target} PRIVATE ${SDPA_SANITIZER_FLAGS})
  endif()
  target_link_options(${target} PRIVATE ${SDPA_SANITIZER_FLAGS})
endfunction()

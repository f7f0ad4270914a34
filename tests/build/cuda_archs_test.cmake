# cmake -P script: cmake/cuda_archs.cmake, case by case. Cases that must be refused run this script
# again with REFUSE set, because a fatal error ends a script.
cmake_minimum_required(VERSION 3.25)
include(${SOURCE_DIR}/cmake/cuda_archs.cmake)

if(DEFINED REFUSE)
  sdpa_resolve_cuda_archs(archs)
  return()
endif()

function(expect sdpa torch environment want)
  set(SDPA_CUDA_ARCHS "${sdpa}")
  set(TORCH_CUDA_ARCH_LIST "${torch}")
  set(ENV{TORCH_CUDA_ARCH_LIST} "${environment}")
  sdpa_resolve_cuda_archs(got)
  if(NOT "${got}" STREQUAL "${want}")
    message(SEND_ERROR "SDPA_CUDA_ARCHS='${sdpa}' TORCH_CUDA_ARCH_LIST='${torch}' environment "
                       "'${environment}': got '${got}', want '${want}'")
  endif()
endfunction()

function(expect_refused variable value word)
  set(ENV{TORCH_CUDA_ARCH_LIST} "")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${SOURCE_DIR} -D REFUSE=1 -D "${variable}=${value}" -P
            ${CMAKE_SCRIPT_MODE_FILE}
    RESULT_VARIABLE failed
    OUTPUT_QUIET
    ERROR_VARIABLE message)
  if(NOT failed)
    message(SEND_ERROR "${variable}='${value}' was accepted")
  elseif(NOT message MATCHES "${variable}: '${word}'")
    message(SEND_ERROR "${variable}='${value}': the message does not name '${word}': ${message}")
  endif()
endfunction()

expect("" "" "" "80-real;89-real;90a-real")
expect("89" "9.0a" "8.0" "89-real")
expect("80;89-virtual;90a-real" "" "" "80-real;89-virtual;90a-real")
expect("89, 90a" "" "" "89-real;90a-real")
expect("" "8.9" "8.0" "89-real")
expect("" "" "8.9" "89-real")
expect("" "8.0;8.9+PTX" "" "80-real;89-real;89-virtual")
expect("" "8.0 8.9+PTX" "" "80-real;89-real;89-virtual")
expect("" "9.0a" "" "90a-real")
expect("" "12.0" "" "120-real")
expect("" "Ada;8.9" "" "89-real;89-virtual")
expect_refused(SDPA_CUDA_ARCHS sm_89 sm_89)
expect_refused(SDPA_CUDA_ARCHS "89;75" 75)
expect_refused(TORCH_CUDA_ARCH_LIST 7.5 7.5)
expect_refused(TORCH_CUDA_ARCH_LIST 89 89)
expect_refused(TORCH_CUDA_ARCH_LIST "8.9+ptx" "8.9.ptx")
expect_refused(TORCH_CUDA_ARCH_LIST All All)

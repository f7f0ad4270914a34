# A phase log that is off costs nothing: the machine code of kernels with their marks, and of the
# same kernels with every mark erased from the source, is the same byte for byte.
#   cmake -D NVCC=... -D SOURCE_DIR=... -D CUDA_INCLUDE=... -D WORK_DIR=... -P zero_cost_test.cmake
set(tree ${WORK_DIR}/kernels)

# compile(<cubin>): always from the same path, which the code's names may hold.
function(compile cubin)
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 --use_fast_math -cubin -arch=sm_90a -I${tree}/include -I${tree}
            -DFP8_SDPA_HAS_DEVICE=1 -DFP8_SDPA_HAS_HOST=0 ${WORK_DIR}/probe.cu -o ${cubin}
    RESULT_VARIABLE failed
    ERROR_VARIABLE words)
  if(failed)
    message(FATAL_ERROR "${cubin} does not compile: ${words}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
file(COPY ${SOURCE_DIR}/kernels DESTINATION ${WORK_DIR})
file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/zero_cost_probe.cu ${WORK_DIR}/probe.cu)
compile(${WORK_DIR}/marked.cubin)

set(erased 0)
foreach(name stage_c/kernel.cuh attention/key_group_kernel.hpp)
  file(READ ${tree}/${name} text)
  string(REGEX MATCHALL "log\\.mark\\(" marks "${text}")
  list(LENGTH marks count)
  math(EXPR erased "${erased} + ${count}")
  string(REGEX REPLACE "log\\.mark\\([^;]*;" "" text "${text}")
  string(REGEX REPLACE "\n[^\n]* log\\(p\\);" "" text "${text}")
  file(WRITE ${tree}/${name} "${text}")
endforeach()
if(erased LESS 20)
  message(FATAL_ERROR "${erased} marks were found in the kernels, expected 20 or more: this test no "
                      "longer knows how they are written")
endif()
compile(${WORK_DIR}/bare.cubin)

file(SHA256 ${WORK_DIR}/marked.cubin marked)
file(SHA256 ${WORK_DIR}/bare.cubin bare)
if(NOT marked STREQUAL bare)
  message(FATAL_ERROR "the marks are not free: ${WORK_DIR}/marked.cubin and bare.cubin differ")
endif()
message(STATUS "${erased} marks erased, sm_90a code unchanged: sha256 ${marked}")

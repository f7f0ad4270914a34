# The CUDA toolkit. With nvcc the kernels are compiled for devices; with its headers alone the build
# still gives the host executor; without the headers there is nothing to build.
#
#   SDPA_HAS_DEVICE          1 where device code is compiled
#   SDPA_HAS_SM90A           1 where 90a is among the architectures, and the sm90 family is compiled
#   SDPA_SM90A_ARCHS         those of the architectures that are 90a: 90a-real, 90a-virtual
#   SDPA_CUDA_INCLUDE_DIR    the folder of cuda_fp8.h
#   fp8_sdpa_internal        what every target of this build needs: include paths, definitions
#   sdpa_kernel_options(<target>)        nvcc options of kernels
#   sdpa_reference_options(<target>)     options of reference code: never fast math
#   sdpa_device_test_options(<target>)   nvcc options of tests: as kernels, without the checks
include_guard(GLOBAL)
include(cuda_archs)

set(SDPA_CUDA_ARCHS "" CACHE STRING
    "GPU architectures; empty: TORCH_CUDA_ARCH_LIST, else ${SDPA_DEFAULT_CUDA_ARCHS}")
set(sdpa_toolkit_roots $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)

set(SDPA_HAS_DEVICE 0)
set(SDPA_HAS_SM90A 0)
if(SDPA_CUDA)
  find_program(SDPA_NVCC nvcc HINTS ${sdpa_toolkit_roots} PATH_SUFFIXES bin)
  if(SDPA_NVCC)
    if(NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${SDPA_NVCC})
    endif()
    sdpa_resolve_cuda_archs(CMAKE_CUDA_ARCHITECTURES)
    enable_language(CUDA)
    find_package(CUDAToolkit 12.4 REQUIRED)
    set(SDPA_HAS_DEVICE 1)
    message(STATUS "fp8_sdpa: device code for ${CMAKE_CUDA_ARCHITECTURES}")
    set(SDPA_SM90A_ARCHS ${CMAKE_CUDA_ARCHITECTURES})
    list(FILTER SDPA_SM90A_ARCHS INCLUDE REGEX "^90a")
    if(SDPA_SM90A_ARCHS)
      set(SDPA_HAS_SM90A 1)
    else()
      message(STATUS "fp8_sdpa: 90a is not among them, so the sm90 family is left out of the device "
                     "code; the host executor has it")
    endif()
  else()
    message(STATUS "fp8_sdpa: no nvcc, so the device kernels, the device half of the gates and "
                   "performance runs are left out; the host executor is built")
  endif()
endif()

if(NOT SDPA_HAS_DEVICE AND NOT SDPA_HOST_EXECUTOR)
  message(FATAL_ERROR "There is nothing to build: no nvcc for the device, and "
                      "SDPA_HOST_EXECUTOR=OFF")
endif()

find_path(
  SDPA_CUDA_INCLUDE_DIR cuda_fp8.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${sdpa_toolkit_roots}
  PATH_SUFFIXES include targets/x86_64-linux/include)
if(NOT SDPA_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cuda_fp8.h was not found. The host executor too needs the CUDA toolkit's "
                      "headers: install the toolkit (12.4 or newer) or set CUDA_HOME to it")
endif()

add_library(fp8_sdpa_internal INTERFACE)
target_compile_features(fp8_sdpa_internal INTERFACE cxx_std_20)
target_include_directories(fp8_sdpa_internal INTERFACE ${PROJECT_SOURCE_DIR}/kernels
                                                       ${PROJECT_SOURCE_DIR})
target_include_directories(fp8_sdpa_internal SYSTEM INTERFACE ${SDPA_CUDA_INCLUDE_DIR})
target_compile_definitions(
  fp8_sdpa_internal INTERFACE FP8_SDPA_HAS_DEVICE=${SDPA_HAS_DEVICE}
                              FP8_SDPA_HAS_SM90A=${SDPA_HAS_SM90A}
                              FP8_SDPA_HAS_HOST=$<BOOL:${SDPA_HOST_EXECUTOR}>)
target_link_libraries(fp8_sdpa_internal INTERFACE Threads::Threads)
if(SDPA_HAS_DEVICE)
  target_link_libraries(fp8_sdpa_internal INTERFACE CUDA::cudart_static)
endif()

# CMake 3.25 does not know C++20 for nvcc.
set(SDPA_NVCC_STANDARD -std=c++20)
set(SDPA_NVCC_KERNEL ${SDPA_NVCC_STANDARD} -O3 --use_fast_math -lineinfo -Xptxas=-v)
# A spill would silently cost the speed that a kernel is written for. Debug prints need a stack.
if(NOT SDPA_DEBUG_PRINT)
  list(APPEND SDPA_NVCC_KERNEL -Xptxas=--warn-on-spills,--warning-as-error)
endif()

function(sdpa_kernel_options target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${SDPA_NVCC_KERNEL}>")
endfunction()

function(sdpa_reference_options target)
  target_compile_options(${target} PRIVATE -O2 -ffp-contract=off)
endfunction()

function(sdpa_device_test_options target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${SDPA_NVCC_STANDARD}>")
endfunction()

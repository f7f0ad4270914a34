# What a binary was built from, as fp8_sdpa_provenance.hpp in the build tree. It is written while
# building, so that it names the commit that was built and not the one that was configured, and
# rewritten only when it changes. Before what it names is compiled: sources that change while they
# are being built are then other ones than the binary says.
#
#   fp8_sdpa_provenance         INTERFACE target: the header's include path
#   fp8_sdpa_write_provenance   what kernels and library are built after
#   fp8_sdpa_source_state       the function that a binary looks at its sources again with
include_guard(GLOBAL)

# The flags that kernels are compiled with, on either backend.
string(TOUPPER "${CMAKE_BUILD_TYPE}" sdpa_build_type)
list(JOIN SDPA_HOST_KERNEL_FLAGS " " sdpa_host_kernel_text)
set(sdpa_flags
    "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${sdpa_build_type}} ${sdpa_host_kernel_text}")
set(sdpa_cuda_flags "")
set(sdpa_cuda_compiler "none")
if(SDPA_HAS_DEVICE)
  list(JOIN SDPA_NVCC_KERNEL " " sdpa_kernel_text)
  set(sdpa_cuda_flags "${CMAKE_CUDA_FLAGS} ${sdpa_kernel_text}")
  set(sdpa_cuda_compiler "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
if(NOT SDPA_SANITIZER STREQUAL "none")
  list(JOIN SDPA_SANITIZER_FLAGS " " sdpa_sanitizer_text)
  string(APPEND sdpa_flags " ${sdpa_sanitizer_text}")
endif()
string(STRIP "${sdpa_flags}" sdpa_flags)
string(STRIP "${sdpa_cuda_flags}" sdpa_cuda_flags)

set(sdpa_source_state ${PROJECT_SOURCE_DIR}/cmake/tools/source_state.cpp)
add_library(fp8_sdpa_source_state STATIC EXCLUDE_FROM_ALL ${sdpa_source_state})
sdpa_sanitize(fp8_sdpa_source_state)
# Of the build and not of the product: no sanitizer.
add_executable(source_state EXCLUDE_FROM_ALL ${sdpa_source_state}
                                             ${PROJECT_SOURCE_DIR}/cmake/tools/source_state_main.cpp)
foreach(target fp8_sdpa_source_state source_state)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${SDPA_QUICK_FLAGS})
  sdpa_warnings(${target})
endforeach()

set(sdpa_generated_dir ${PROJECT_BINARY_DIR}/generated)
set(sdpa_provenance_header ${sdpa_generated_dir}/fp8_sdpa_provenance.hpp)
add_custom_target(
  fp8_sdpa_write_provenance ALL
  COMMAND
    ${CMAKE_COMMAND} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D HEADER=${sdpa_provenance_header}
    -D TEMPLATE=${PROJECT_SOURCE_DIR}/cmake/provenance.hpp.in
    -D "CXX_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -D "CUDA_COMPILER=${sdpa_cuda_compiler}" -D "CXX_FLAGS=${sdpa_flags}"
    -D "CUDA_FLAGS=${sdpa_cuda_flags}" -D "CUDA_ARCHS=${CMAKE_CUDA_ARCHITECTURES}"
    -D BUILD_TYPE=${CMAKE_BUILD_TYPE} -D SOURCE_STATE_TOOL=$<TARGET_FILE:source_state> -D SANITIZER=${SDPA_SANITIZER} -P
    ${PROJECT_SOURCE_DIR}/cmake/write_provenance.cmake
  DEPENDS source_state
  BYPRODUCTS ${sdpa_provenance_header}
  COMMENT "Writing fp8_sdpa_provenance.hpp"
  VERBATIM)

add_library(fp8_sdpa_provenance INTERFACE)
target_include_directories(fp8_sdpa_provenance INTERFACE ${sdpa_generated_dir})
add_dependencies(fp8_sdpa_provenance fp8_sdpa_write_provenance)

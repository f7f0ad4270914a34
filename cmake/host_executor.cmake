# Compile options of kernels that g++ compiles for the host executor.
#
#   sdpa_host_kernel_options(<target>)
include_guard(GLOBAL)
include(CheckCXXSourceRuns)

# The conversions of cuda_fp16.h are several times faster where the compiler may use F16C. The
# binaries are for the machine that builds them, so ask this one.
set(CMAKE_REQUIRED_FLAGS "-mavx2 -mfma -mf16c")
check_cxx_source_runs(
  "#include <immintrin.h>
   int main(int argc, char**) {
     volatile float x = static_cast<float>(argc);
     __m256 v = _mm256_fmadd_ps(_mm256_set1_ps(x), _mm256_set1_ps(x), _mm256_set1_ps(x));
     __m128i h = _mm256_cvtps_ph(v, 0);
     __m256i w = _mm256_add_epi32(_mm256_cvtepu16_epi32(h), _mm256_set1_epi32(1));
     return _mm256_extract_epi32(w, 0) == 0;
   }"
  SDPA_CPU_HAS_AVX2_FMA_F16C)
unset(CMAKE_REQUIRED_FLAGS)

# Kernels cast between vector types as CUDA code does, so the host needs -fno-strict-aliasing.
# Contraction stays off: the same bits on every machine matter more than a fused multiply-add.
if(SDPA_SANITIZER STREQUAL "none")
  set(SDPA_HOST_KERNEL_FLAGS -O2)
else()
  set(SDPA_HOST_KERNEL_FLAGS -O2 -g1)
  # A load whose value is not used on some path stays where the source has it: a device makes it, and
  # AddressSanitizer must see where it goes.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND SDPA_HOST_KERNEL_FLAGS -fno-tree-sink)
  endif()
endif()
list(APPEND SDPA_HOST_KERNEL_FLAGS -fno-strict-aliasing -ffp-contract=off)
if(SDPA_CPU_HAS_AVX2_FMA_F16C)
  list(APPEND SDPA_HOST_KERNEL_FLAGS -mavx2 -mfma -mf16c)
endif()

function(sdpa_host_kernel_options target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${SDPA_HOST_KERNEL_FLAGS}>")
endfunction()

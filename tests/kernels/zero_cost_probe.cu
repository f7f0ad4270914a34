// Kernels with phase marks, for zero_cost_test.cmake: all ways through stage_c/kernel.cuh and
// attention/key_group_kernel.hpp.
#include "sm80/kernel.cuh"
#include "stage_c/kernel.cuh"

template __global__ void
gpu::kernel_entry<fp8_sdpa::stage_c::Kernel<fp8_sdpa::stage_c::tag::stage_c_cp_async>>(
    const __grid_constant__ fp8_sdpa::attention::ForwardParams);
template __global__ void gpu::kernel_entry<
    fp8_sdpa::stage_c::Kernel<fp8_sdpa::stage_c::tag::stage_c_cp_async_wmma_pv_warp_spec_swizzle>>(
    const __grid_constant__ fp8_sdpa::attention::ForwardParams);
template __global__ void
gpu::kernel_entry<fp8_sdpa::sm80::Kernel<fp8_sdpa::sm80::tag::sm80_mma, fp8_sdpa::Dtype::kE4M3>>(
    const __grid_constant__ fp8_sdpa::attention::ForwardParams);

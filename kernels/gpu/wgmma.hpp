// Asynchronous matrix multiply by a warpgroup: PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions: wgmma".
//
// A warpgroup is four warps, the first a multiple of 4. d (64 x n) = a (64 x 32) b (32 x n) [+ d].
// Warp w of the group holds rows 16 w to 16 w + 15 in mma's layouts (gpu/mma.hpp), g = lane / 4 and
// t = lane % 4:
//
//   d[i]   row g + 8 (i / 2 % 2), column 8 (i / 4) + 2t + i % 2
//   a[i]   row g + 8 (i % 2), columns 16 (i / 2) + 4t .. +3; of 16-bit elements 8 (i / 2) + 2t, +1
//
// Nothing may touch d, a or the shared memory behind a descriptor between the multiply and the
// wait that covers it; on the host executor variables passed as a and d must also still exist
// there. Order: (registers written) wgmma_fence, multiplies, wgmma_commit, wgmma_wait, (d read).
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#include "gpu/mma.hpp"
#include "gpu/shared_matrix.hpp"
#if GPU_ON_DEVICE
#include "gpu/wgmma_sizes.hpp"
#else
#include "gpu/host/tensor_core/wgmma.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// wgmma.fence.sync.aligned (PTX ISA, "wgmma.fence"; sm_90a): registers written before it may be
/// operands after it. Needed before the first multiply, and wherever registers have been touched;
/// not between multiplies of one shape into the same d.
GPU_FN void wgmma_fence([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  host::wgmma_fence(loc);
#endif
}

/// wgmma.commit_group.sync.aligned (PTX ISA, "wgmma.commit_group"; sm_90a): this warp's multiplies
/// since the last commit become one group.
GPU_FN void wgmma_commit([[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  host::wgmma_commit(loc);
#endif
}

/// wgmma.wait_group.sync.aligned N (PTX ISA, "wgmma.wait_group"; sm_90a): waits until at most the N
/// youngest groups of this warp are in flight.
template <int N>
GPU_FN void wgmma_wait([[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(N >= 0);
#if GPU_ON_DEVICE
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#else
  host::wgmma_wait(N, loc);
#endif
}

/// wgmma.mma_async.sync.aligned.m64nNk32.f32.{e4m3, e5m2}.{e4m3, e5m2} (PTX ISA,
/// "wgmma.mma_async"; sm_90a), n = 2 kRegisters, a multiple of 8 up to 256: a and b in shared
/// memory. With accumulate false, d's old value is not read. Hopper's tensor cores keep about 13
/// fractional bits of a sum.
template <Fp8 kA, Fp8 kB, int kRegisters>
GPU_FN void wgmma_m64k32(float (&d)[kRegisters], std::uint64_t a_descriptor,
                         std::uint64_t b_descriptor, bool accumulate,
                         [[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(kRegisters % 4 == 0 && kRegisters <= 128);
#if GPU_ON_DEVICE
  detail::Wgmma<2 * kRegisters>::template a_in_shared<kA, kB>(d, a_descriptor, b_descriptor,
                                                              accumulate ? 1 : 0);
#else
  host::wgmma({.d = d,
               .n = 2 * kRegisters,
               .a = nullptr,
               .a_descriptor = a_descriptor,
               .b_descriptor = b_descriptor,
               .accumulate = accumulate,
               .a_type = host::wgmma_type(kA),
               .b_type = host::wgmma_type(kB)},
              loc);
#endif
}

/// The same with a in registers.
template <Fp8 kA, Fp8 kB, int kRegisters>
GPU_FN void wgmma_m64k32(float (&d)[kRegisters], const std::uint32_t (&a)[4],
                         std::uint64_t b_descriptor, bool accumulate,
                         [[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(kRegisters % 4 == 0 && kRegisters <= 128);
#if GPU_ON_DEVICE
  detail::Wgmma<2 * kRegisters>::template a_in_registers<kA, kB>(d, a, b_descriptor,
                                                                 accumulate ? 1 : 0);
#else
  host::wgmma({.d = d,
               .n = 2 * kRegisters,
               .a = a,
               .a_descriptor = 0,
               .b_descriptor = b_descriptor,
               .accumulate = accumulate,
               .a_type = host::wgmma_type(kA),
               .b_type = host::wgmma_type(kB)},
              loc);
#endif
}

/// wgmma.mma_async.sync.aligned.m64nNk32.s32.s8.s8 (PTX ISA, "wgmma.mma_async"; sm_90a), n = 2
/// kRegisters, 8, 24 or a multiple of 16 up to 256: signed bytes, a and b in shared memory,
/// K-major. Sums are modulo 2^32.
template <int kRegisters>
GPU_FN void wgmma_m64k32_int8(std::uint32_t (&d)[kRegisters], std::uint64_t a_descriptor,
                              std::uint64_t b_descriptor, bool accumulate,
                              [[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(kRegisters == 4 || kRegisters == 12 || kRegisters % 8 == 0);
  static_assert(kRegisters <= 128);
#if GPU_ON_DEVICE
  detail::Wgmma<2 * kRegisters>::template int8_in_shared<>(d, a_descriptor, b_descriptor,
                                                           accumulate ? 1 : 0);
#else
  host::wgmma({.d = reinterpret_cast<float*>(d),
               .n = 2 * kRegisters,
               .a = nullptr,
               .a_descriptor = a_descriptor,
               .b_descriptor = b_descriptor,
               .accumulate = accumulate,
               .a_type = host::WgmmaType::kInt8,
               .b_type = host::WgmmaType::kInt8},
              loc);
#endif
}

/// wgmma.mma_async.sync.aligned.m64nNk16.f32.{f16.f16, bf16.bf16} (PTX ISA, "wgmma.mma_async";
/// sm_90a), n = 2 kRegisters: d (64 x n) = a (64 x 16) b (16 x n) [+ d], a in registers, in mma's
/// layout of 16-bit elements; b in shared memory as rows of k, contiguous in n (N-major): panels of
/// 64 columns with the swizzle of 128 bytes, shared_matrix.hpp.
template <Float16 kType, int kRegisters>
GPU_FN void wgmma_m64k16(float (&d)[kRegisters], const std::uint32_t (&a)[4],
                         std::uint64_t b_descriptor, bool accumulate,
                         [[maybe_unused]] Loc loc = GPU_LOC) {
  static_assert(kRegisters % 4 == 0 && kRegisters <= 128);
#if GPU_ON_DEVICE
  detail::Wgmma<2 * kRegisters>::template b_by_rows<kType>(d, a, b_descriptor, accumulate ? 1 : 0);
#else
  constexpr auto kOperands =
      kType == Float16::kHalf ? host::WgmmaType::kHalf : host::WgmmaType::kBFloat16;
  host::wgmma({.d = d,
               .n = 2 * kRegisters,
               .a = a,
               .a_descriptor = 0,
               .b_descriptor = b_descriptor,
               .accumulate = accumulate,
               .a_type = kOperands,
               .b_type = kOperands},
              loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu

// Warp matrix multiply with register operands: PTX ISA, "Warp Level Matrix Multiply-Accumulate
// Instructions: mma" and "ldmatrix".
//
// Who holds what is laid down in the PTX ISA's figures. With g = lane / 4 and t = lane % 4:
//
//   operand           | register      | 16-bit elements            | 8-bit elements
//   ------------------|---------------|----------------------------|----------------------------
//   A (16 x k)        | a[i]          | row g + 8 (i % 2),         | row g + 8 (i % 2),
//                     |               | columns 8 (i / 2) + 2t, +1 | columns 16 (i / 2) + 4t .. +3
//   B (k x 8)         | b[i]          | rows 8i + 2t, +1, column g | rows 16i + 4t .. +3, column g
//   C, D (16 x 8)     | d[i], fp32    | row g + 8 (i / 2), column 2t + i % 2
//   ldmatrix          | r[i]          | matrix i: row g, columns 2t, +1
//   ldmatrix.trans    | r[i]          | matrix i: rows 2t, +1, column g
//
// The element of the lower row or column is in the register's lower bits.
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#include "gpu/cp_async.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/tensor_core/mma.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

#if GPU_ON_DEVICE
#define GPU_MMA(SIZES, A, B)                                                          \
  asm volatile("mma.sync.aligned." SIZES ".row.col.f32." A "." B                      \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

/// The FP8 element types of mma.
enum class Fp8 { kE4M3, kE5M2 };

/// ldmatrix.sync.aligned.m8n8.x4.shared.b16 (PTX ISA, "ldmatrix"; sm_75): four 8 x 8 matrices of
/// 16-bit elements. Lane 8i + j passes the address of row j of matrix i, a multiple of 16 bytes.
GPU_FN void ldmatrix_x4(std::uint32_t (&r)[4], const void* row,
                        [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#else
  host::ldmatrix_x4(r, host::read_matrix_row(row, "ldmatrix_x4", loc), "ldmatrix_x4", loc);
#endif
}

/// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 (PTX ISA, "ldmatrix"; sm_75): the same four
/// matrices, each transposed on its way into the registers.
GPU_FN void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row,
                              [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#else
  host::ldmatrix_x4_trans(r, host::read_matrix_row(row, "ldmatrix_x4_trans", loc),
                          "ldmatrix_x4_trans", loc);
#endif
}

/// stmatrix.sync.aligned.m8n8.x4.shared.b16 (PTX ISA, "stmatrix"; sm_90): ldmatrix_x4's inverse.
/// Lane 8i + j passes the address that row j of matrix i goes to, a multiple of 16 bytes.
GPU_FN void stmatrix_x4(void* row, const std::uint32_t (&r)[4],
                        [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
#else
  host::write_matrix_row(row, host::stmatrix_x4(row, r, "stmatrix_x4", loc));
#endif
}

/// The 16-bit element types of mma.
enum class Float16 { kHalf, kBFloat16 };

/// mma.sync.aligned.m16n8k16.row.col.f32.{f16.f16, bf16.bf16}.f32 (PTX ISA, "mma"; sm_80):
/// d (16 x 8) += a (16 x 16) b (16 x 8), 16-bit operands, fp32 accumulation.
template <Float16 kType = Float16::kHalf>
GPU_FN void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                         [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  if constexpr (kType == Float16::kHalf) {
    GPU_MMA("m16n8k16", "f16", "f16");
  } else {
    GPU_MMA("m16n8k16", "bf16", "bf16");
  }
#else
  host::mma_m16n8k16(d, a, b, kType == Float16::kBFloat16, loc);
#endif
}

/// mma.sync.aligned.m16n8k32.row.col.f32.{e4m3, e5m2}.{e4m3, e5m2}.f32 (PTX ISA, "mma"; sm_89):
/// d (16 x 8) += a (16 x 32) b (32 x 8), FP8 operands, fp32 registers. Ada's tensor cores keep
/// about 13 fractional bits of a sum; Hopper executes it as half code.
template <Fp8 kA, Fp8 kB>
GPU_FN void mma_m16n8k32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                         [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  if constexpr (kA == Fp8::kE4M3 && kB == Fp8::kE4M3) {
    GPU_MMA("m16n8k32", "e4m3", "e4m3");
  } else if constexpr (kA == Fp8::kE4M3) {
    GPU_MMA("m16n8k32", "e4m3", "e5m2");
  } else if constexpr (kB == Fp8::kE4M3) {
    GPU_MMA("m16n8k32", "e5m2", "e4m3");
  } else {
    GPU_MMA("m16n8k32", "e5m2", "e5m2");
  }
#else
  host::mma_m16n8k32(d, a, b, {.a_is_e5m2 = kA == Fp8::kE5M2, .b_is_e5m2 = kB == Fp8::kE5M2}, loc);
#endif
}

#if GPU_ON_DEVICE
#undef GPU_MMA
#endif

}  // namespace GPU_BACKEND
}  // namespace gpu

// mma and ldmatrix on the host executor. Layouts are those of gpu/mma.hpp's table, which are fixed
// by the PTX ISA: unlike a wmma fragment's, a kernel may count on them.
//
// Numeric model: products are exact in fp32; each element accumulates them in the order of k with
// one fused multiply-add each. Tensor cores add groups of products with truncation instead, so
// device results differ in the last bits (the conformance test states the tolerance).
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host {

/// The element types of an FP8 multiply.
struct Fp8Types {
  bool a_is_e5m2;
  bool b_is_e5m2;
};

/// Ends the kernel with an error unless `row` is 16-byte aligned shared memory.
void check_matrix_row(const void* row, const char* name, Location loc);

/// The row of an 8 x 8 matrix that this lane passes to ldmatrix. Read here, in the lane's own code,
/// where sanitizers see it.
inline uint4 read_matrix_row(const void* row, const char* name, Location loc) {
  check_matrix_row(row, name, loc);
  return *static_cast<const uint4*>(row);
}

/// Deals the rows that all lanes have read. Every lane of the warp takes part, here and below.
void ldmatrix_x4(std::uint32_t (&r)[4], const uint4& row, const char* name, Location loc);
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const uint4& row, const char* name, Location loc);

/// The row that this lane stores, of the matrices that all lanes hold.
uint4 stmatrix_x4(const void* row, const std::uint32_t (&r)[4], const char* name, Location loc);

/// Stored here, in the lane's own code, where sanitizers see it.
inline void write_matrix_row(void* row, const uint4& value) { *static_cast<uint4*>(row) = value; }

/// Of halves or, both operands, of bfloat16.
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  bool bfloat16, Location loc);
void mma_m16n8k32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const Fp8Types& types, Location loc);

}  // namespace gpu::host

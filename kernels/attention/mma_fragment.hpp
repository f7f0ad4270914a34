// Operands of mma.sync m16n8k16 from half tiles in shared memory, and the place of an accumulator's
// elements. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix".
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

/// The bits of two halves, as operands hold them.
GPU_FN std::uint32_t bits_of(__half2 pair) {
  std::uint32_t bits = 0;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

/// One warp's 16 x 16 A operand, and two 16 x 8 B operands side by side (columns 0-7 and 8-15).
struct FragmentA {
  std::uint32_t x[4];
};
struct FragmentB {
  std::uint32_t x[4];  ///< x[0], x[1]: columns 0-7; x[2], x[3]: columns 8-15

  GPU_FN void half(int which, std::uint32_t (&b)[2]) const {
    b[0] = x[2 * which];
    b[1] = x[2 * which + 1];
  }
};

/// Where this lane's four accumulator elements are in a 16 x 8 tile:
///   element 0, 1: row lane / 4,     columns 2 * (lane % 4) and the next
///   element 2, 3: row lane / 4 + 8, the same columns
struct AccumulatorPlace {
  int first_row;
  int col;

  GPU_FN static AccumulatorPlace of_this_lane() {
    return {gpu::lane_idx() / 4, gpu::lane_idx() % 4 * 2};
  }
  GPU_FN int row(int half) const { return first_row + 8 * half; }
};

/// A from rows row .. row + 15, columns col .. col + 15 of a row-major tile.
template <class Tile>
GPU_FN FragmentA load_a(const Tile& tile, int row, int col) {
  FragmentA a;
  gpu::ldmatrix_x4(a.x, tile.at(row + gpu::lane_idx() % 16, col + gpu::lane_idx() / 16 * 8));
  return a;
}

/// B (k x n) from a tile that stores it as (n, k): K of Q K^T. Keys n .. n + 15, dims k .. k + 15.
template <class Tile>
GPU_FN FragmentB load_b_from_rows(const Tile& tile, int n, int k) {
  const int lane = gpu::lane_idx();
  FragmentB b;
  gpu::ldmatrix_x4(b.x, tile.at(n + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8));
  return b;
}

/// B (k x n) from a tile that stores it as (k, n): V of P V. Keys k .. k + 15, dims n .. n + 15.
template <class Tile>
GPU_FN FragmentB load_b_from_columns(const Tile& tile, int k, int n) {
  const int lane = gpu::lane_idx();
  FragmentB b;
  gpu::ldmatrix_x4_trans(b.x, tile.at(k + lane % 16, n + lane / 16 * 8));
  return b;
}

/// acc[0], acc[1] (16 x 8 each, side by side) += A B.
GPU_FN void multiply_add(float (&acc)[2][4], const FragmentA& a, const FragmentB& b) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t operand[2];
    b.half(half, operand);
    gpu::mma_m16n8k16(acc[half], a.x, operand);
  }
}

}  // namespace fp8_sdpa::attention

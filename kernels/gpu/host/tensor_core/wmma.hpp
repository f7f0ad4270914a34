// nvcuda::wmma on the host executor: m16n16k16, half x half, fp32 accumulator.
//
// Numeric model: products are exact in fp32; each element accumulates them in the order of k with
// one fused multiply-add each. Tensor cores add groups of products with truncation instead, so
// device results differ in the last bits (the conformance test states the tolerance).
//
// Layout: a 16 x 16 matrix is 32 chunks of 8 neighbours along its contiguous dimension, one chunk a
// lane. Which lane holds which chunk is a seeded permutation, another one for A, B and accumulator:
// a kernel that assumes a layout computes garbage, as it may on the next architecture.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major };

/// Rows and columns of every operand.
inline constexpr int kDim = 16;
/// Neighbours that one lane holds.
inline constexpr int kChunk = 8;

/// One lane's share of a matrix operand.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr bool kIsAccumulator = std::is_same_v<Use, accumulator>;
  static_assert(M == kDim && N == kDim && K == kDim, "only m16n16k16 is served");
  static_assert(std::is_same_v<T, std::conditional_t<kIsAccumulator, float, __half>>,
                "only half operands and float accumulators are served");
  static constexpr int num_elements = kChunk;
  alignas(16) T x[num_elements];
};

using FragmentA = fragment<matrix_a, kDim, kDim, kDim, __half, row_major>;
template <class Layout>
using FragmentB = fragment<matrix_b, kDim, kDim, kDim, __half, Layout>;
using Accumulator = fragment<accumulator, kDim, kDim, kDim, float>;

namespace detail {

/// Where this lane's chunk starts: `outer` in the strided dimension, `inner` in the contiguous one.
struct ChunkPosition {
  int outer;
  int inner;
};
inline ChunkPosition chunk_position(WmmaOperand operand) {
  const int chunk = current_lane->wmma_chunk[operand];
  return {chunk / 2, chunk % 2 * kChunk};
}

/// The alignment that wmma asks of a matrix in memory (CUDA C++ Programming Guide, "Warp Matrix
/// Functions": 256-bit pointer, leading dimension a multiple of 16 bytes).
template <class T>
inline void check_alignment(const T* matrix, unsigned ld, const char* name, Location loc) {
  constexpr std::uintptr_t kPointerBytes = 32;
  constexpr unsigned kStrideBytes = 16;
  if (reinterpret_cast<std::uintptr_t>(matrix) % kPointerBytes != 0) [[unlikely]] {
    fail_operand(name, "pointer is not a multiple of 32 bytes", loc);
  }
  if (ld * sizeof(T) % kStrideBytes != 0) [[unlikely]] {
    fail_operand(name, "leading dimension is not a multiple of 16 bytes", loc);
  }
}

template <class Use>
inline constexpr WmmaOperand kOperand = std::is_same_v<Use, matrix_a>   ? kWmmaA
                                        : std::is_same_v<Use, matrix_b> ? kWmmaB
                                                                        : kWmmaAccumulator;

}  // namespace detail

/// Sets every element to `value`.
template <class Fragment, class T>
inline void fill_fragment(Fragment& f, const T& value) {
  for (auto& element : f.x) element = value;
}

/// Reads this lane's share of a 16 x 16 half matrix, `ld` elements between rows (columns for
/// col_major).
template <class Use, class Layout>
inline void load_matrix_sync(fragment<Use, kDim, kDim, kDim, __half, Layout>& f,
                             const __half* matrix, unsigned ld,
                             Location loc = Location::current()) {
  detail::check_alignment(matrix, ld, "wmma::load_matrix_sync", loc);
  const auto at = detail::chunk_position(detail::kOperand<Use>);
  // One 16-byte access, so that a sanitizer sees the lane's read at this line's caller.
  *reinterpret_cast<uint4*>(f.x) =
      *reinterpret_cast<const uint4*>(matrix + at.outer * ld + at.inner);
}

/// Reads this lane's share of a 16 x 16 float accumulator.
inline void load_matrix_sync(Accumulator& f, const float* matrix, unsigned ld, layout_t /*layout*/,
                             Location loc = Location::current()) {
  detail::check_alignment(matrix, ld, "wmma::load_matrix_sync", loc);
  const auto at = detail::chunk_position(kWmmaAccumulator);
  const auto* from = reinterpret_cast<const float4*>(matrix + at.outer * ld + at.inner);
  auto* to = reinterpret_cast<float4*>(f.x);
  to[0] = from[0];
  to[1] = from[1];
}

/// Writes this lane's share of a 16 x 16 float accumulator.
inline void store_matrix_sync(float* matrix, const Accumulator& f, unsigned ld, layout_t /*layout*/,
                              Location loc = Location::current()) {
  detail::check_alignment(matrix, ld, "wmma::store_matrix_sync", loc);
  const auto at = detail::chunk_position(kWmmaAccumulator);
  auto* to = reinterpret_cast<float4*>(matrix + at.outer * ld + at.inner);
  const auto* from = reinterpret_cast<const float4*>(f.x);
  to[0] = from[0];
  to[1] = from[1];
}

/// d = a * b + c. Every lane of the warp takes part.
template <class LayoutB>
inline void mma_sync(Accumulator& d, const FragmentA& a, const FragmentB<LayoutB>& b,
                     const Accumulator& c, Location loc = Location::current()) {
  WmmaArguments arguments{
      .a = reinterpret_cast<const std::uint16_t*>(a.x),
      .b = reinterpret_cast<const std::uint16_t*>(b.x),
      .c = c.x,
      .d = d.x,
      .b_is_col_major = std::is_same_v<LayoutB, col_major>,
  };
  host::wmma_mma(arguments, loc);
}

}  // namespace gpu::host::wmma

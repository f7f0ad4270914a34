// The arithmetic of wmma::mma_sync, over the registers of a whole warp.
#include "gpu/host/tensor_core/wmma.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define GPU_HOST_AVX2 1
#else
#define GPU_HOST_AVX2 0
#endif

#include "gpu/host/executor/block.hpp"
#include "gpu/host/tensor_core/convert.hpp"

namespace gpu::host {
namespace {

using wmma::kChunk;
using wmma::kDim;

struct alignas(32) HalfMatrix {
  std::uint16_t at[kDim][kDim];
};
struct alignas(32) FloatMatrix {
  float at[kDim][kDim];
};

void transpose(HalfMatrix& m) {
  for (int r = 0; r < kDim; ++r) {
    for (int c = 0; c < r; ++c) std::swap(m.at[r][c], m.at[c][r]);
  }
}

void to_float(const HalfMatrix& from, FloatMatrix& to) {
  for (int r = 0; r < kDim; ++r) {
#if GPU_HOST_AVX2
    for (int c = 0; c < kDim; c += kChunk) {
      const auto halves = _mm_load_si128(reinterpret_cast<const __m128i*>(&from.at[r][c]));
      _mm256_store_ps(&to.at[r][c], _mm256_cvtph_ps(halves));
    }
#else
    for (int c = 0; c < kDim; ++c) to.at[r][c] = half_to_float(half_from_bits(from.at[r][c]));
#endif
  }
}

/// c += a * b: in the order of k, one fused multiply-add each.
void multiply_add(const FloatMatrix& a, const FloatMatrix& b, FloatMatrix& c) {
  for (int r = 0; r < kDim; ++r) {
#if GPU_HOST_AVX2
    __m256 left = _mm256_load_ps(&c.at[r][0]);
    __m256 right = _mm256_load_ps(&c.at[r][kChunk]);
    for (int k = 0; k < kDim; ++k) {
      const __m256 factor = _mm256_broadcast_ss(&a.at[r][k]);
      left = _mm256_fmadd_ps(factor, _mm256_load_ps(&b.at[k][0]), left);
      right = _mm256_fmadd_ps(factor, _mm256_load_ps(&b.at[k][kChunk]), right);
    }
    _mm256_store_ps(&c.at[r][0], left);
    _mm256_store_ps(&c.at[r][kChunk], right);
#else
    for (int k = 0; k < kDim; ++k) {
      for (int n = 0; n < kDim; ++n) c.at[r][n] = std::fma(a.at[r][k], b.at[k][n], c.at[r][n]);
    }
#endif
  }
}

/// Where in a 16 x 16 matrix the chunk of a lane's operand starts.
template <class Matrix>
auto* chunk_of(Matrix& m, const Fiber& lane, WmmaOperand operand) {
  const int chunk = lane.wmma_chunk[operand];
  return &m.at[chunk / 2][chunk % 2 * kChunk];
}

void multiply(Warp& warp) {
  HalfMatrix a;
  HalfMatrix b;
  FloatMatrix c;
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    const auto& from = *static_cast<const WmmaArguments*>(warp.arguments[lane]);
    const Fiber& fiber = *warp.fibers[lane];
    std::memcpy(chunk_of(a, fiber, kWmmaA), from.a, kChunk * sizeof(std::uint16_t));
    std::memcpy(chunk_of(b, fiber, kWmmaB), from.b, kChunk * sizeof(std::uint16_t));
    std::memcpy(chunk_of(c, fiber, kWmmaAccumulator), from.c, kChunk * sizeof(float));
  }
  const auto& first = *static_cast<const WmmaArguments*>(warp.arguments[0]);
  if (first.b_is_col_major) transpose(b);
  FloatMatrix a_float;
  FloatMatrix b_float;
  to_float(a, a_float);
  to_float(b, b_float);
  multiply_add(a_float, b_float, c);
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    const auto& to = *static_cast<const WmmaArguments*>(warp.arguments[lane]);
    std::memcpy(to.d, chunk_of(c, *warp.fibers[lane], kWmmaAccumulator), kChunk * sizeof(float));
  }
}

}  // namespace

void wmma_mma(WmmaArguments& arguments, Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "wmma::mma_sync", .loc = loc}, multiply, &arguments);
}

}  // namespace gpu::host

// Conformance kernels of ldmatrix, mma and wmma. For mma, each lane fills its operands from global
// memory by the table of gpu/mma.hpp, and writes its results by that table.
#pragma once

#include <type_traits>

#include "tests/gpu_model/conformance/base.cuh"

namespace conformance {
inline namespace GPU_BACKEND {

/// in: 32 rows of 16 bytes, row j of matrix i at 8 i + j. out: 8 words per lane: what ldmatrix_x4
/// gives it, and what ldmatrix_x4_trans does. Rows lie scattered in shared memory.
struct Ldmatrix : KernelBase<kLanes, uint4[kLanes]> {
  GPU_FN static void run(const Buffers& p, Shared& rows) {
    constexpr int kStride = 7;  // coprime to the number of rows
    const int lane = gpu::lane_idx();
    uint4* mine = &rows[lane * kStride % kLanes];
    *mine = static_cast<const uint4*>(p.in)[lane];
    gpu::sync_warp();
    std::uint32_t plain[kLdmatrixMatrices];
    std::uint32_t transposed[kLdmatrixMatrices];
    gpu::ldmatrix_x4(plain, mine);
    gpu::ldmatrix_x4_trans(transposed, mine);
    auto* out = static_cast<std::uint32_t*>(p.out) + lane * 2 * kLdmatrixMatrices;
    for (int i = 0; i < kLdmatrixMatrices; ++i) {
      out[i] = plain[i];
      out[kLdmatrixMatrices + i] = transposed[i];
    }
  }
};

/// in: per lane the 4 words of stmatrix_x4. out: the rows that each wrote, as kLdmatrix's in.
struct Stmatrix : KernelBase<kLanes, uint4[kLanes]> {
  static constexpr int kMinSmVersion = 90;

  GPU_FN static void run(const Buffers& p, Shared& rows) {
    constexpr int kStride = 7;  // coprime to the number of rows
    const int lane = gpu::lane_idx();
    const int mine = lane * kStride % kLanes;
    std::uint32_t words[kLdmatrixMatrices];
    const auto* in = static_cast<const std::uint32_t*>(p.in) + lane * 2 * kLdmatrixMatrices;
    for (int i = 0; i < kLdmatrixMatrices; ++i) words[i] = in[i];
    gpu::stmatrix_x4(&rows[mine], words);
    gpu::sync_warp();
    static_cast<uint4*>(p.out)[lane] = rows[mine];
  }
};

/// Matrices in memory: A and C row-major, B as (n, k), so that a register's elements are
/// neighbours.
template <class Element, int kDepth>
struct MmaInput {
  Element a[kMmaM][kDepth];
  Element b[kMmaN][kDepth];
  float c[kMmaM][kMmaN];
};

/// One lane's operands; kDepth is the multiply's k.
template <class Element, int kDepth>
struct MmaOperands {
  static constexpr int kPerWord = static_cast<int>(sizeof(std::uint32_t) / sizeof(Element));
  std::uint32_t a[4];
  std::uint32_t b[2];
  float d[4];

  GPU_FN explicit MmaOperands(const MmaInput<Element, kDepth>& in) {
    const int g = gpu::lane_idx() / 4;
    const int t = gpu::lane_idx() % 4;
    for (int i = 0; i < 4; ++i) {
      const int k = i / 2 * (kDepth / 2) + kPerWord * t;
      a[i] = *reinterpret_cast<const std::uint32_t*>(&in.a[g + 8 * (i % 2)][k]);
      d[i] = in.c[g + 8 * (i / 2)][2 * t + i % 2];
    }
    for (int i = 0; i < 2; ++i) {
      b[i] = *reinterpret_cast<const std::uint32_t*>(&in.b[g][i * (kDepth / 2) + kPerWord * t]);
    }
  }

  GPU_FN void write(float* out) const {
    const int g = gpu::lane_idx() / 4;
    const int t = gpu::lane_idx() % 4;
    for (int i = 0; i < 4; ++i) out[(g + 8 * (i / 2)) * kMmaN + 2 * t + i % 2] = d[i];
  }
};

/// in: MmaInput of 16-bit elements. out: A B + C, row-major. (A type: a kernel is no template over
/// values.)
template <class Type>
struct Mma16Of : KernelBase<kLanes> {
  GPU_FN static void run(const Buffers& p, Nothing&) {
    MmaOperands<std::uint16_t, kMmaHalfK> m(
        *static_cast<const MmaInput<std::uint16_t, kMmaHalfK>*>(p.in));
    gpu::mma_m16n8k16<Type::value>(m.d, m.a, m.b);
    m.write(static_cast<float*>(p.out));
  }
};

template <gpu::Float16 kType>
using Mma16 = Mma16Of<std::integral_constant<gpu::Float16, kType>>;

/// in: MmaInput of FP8 codes. out: A B + C, row-major, with A and B as E4M3 E4M3, E4M3 E5M2, E5M2
/// E4M3, E5M2 E5M2.
struct MmaFp8 : KernelBase<kLanes> {
  static constexpr int kMinSmVersion = 89;

  template <gpu::Fp8 kA, gpu::Fp8 kB>
  GPU_FN static void multiply(const Buffers& p, int pair) {
    MmaOperands<std::uint8_t, kMmaFp8K> m(
        *static_cast<const MmaInput<std::uint8_t, kMmaFp8K>*>(p.in));
    gpu::mma_m16n8k32<kA, kB>(m.d, m.a, m.b);
    m.write(static_cast<float*>(p.out) + pair * kMmaM * kMmaN);
  }

  GPU_FN static void run(const Buffers& p, Nothing&) {
    multiply<gpu::Fp8::kE4M3, gpu::Fp8::kE4M3>(p, 0);
    multiply<gpu::Fp8::kE4M3, gpu::Fp8::kE5M2>(p, 1);
    multiply<gpu::Fp8::kE5M2, gpu::Fp8::kE4M3>(p, 2);
    multiply<gpu::Fp8::kE5M2, gpu::Fp8::kE5M2>(p, 3);
  }
};

/// in: A, B (halves) and C (floats), all row-major. out: kWmmaLayouts x A B + C, row-major.
struct WmmaShared {
  alignas(32) __half a[kMatrixElements];
  alignas(32) __half b[kMatrixElements];
  alignas(32) float c[kMatrixElements];
};
struct WmmaInput {
  __half a[kMatrixElements];
  __half b[kMatrixElements];
  float c[kMatrixElements];
};
struct Wmma : KernelBase<kLanes, WmmaShared> {
  template <class LayoutB>
  GPU_FN static void multiply(const WmmaInput& in, float* out, Shared& shared) {
    namespace w = gpu::wmma;
    constexpr int kDim = kMatrixDim;
    gpu::sync_warp();
    for (int i = gpu::lane_idx(); i < kMatrixElements; i += kLanes) {
      const int place = std::is_same_v<LayoutB, w::col_major> ? i % kDim * kDim + i / kDim : i;
      shared.a[i] = in.a[i];
      shared.b[place] = in.b[i];
      shared.c[i] = in.c[i];
    }
    gpu::sync_warp();
    w::fragment<w::matrix_a, kDim, kDim, kDim, __half, w::row_major> a;
    w::fragment<w::matrix_b, kDim, kDim, kDim, __half, LayoutB> b;
    w::fragment<w::accumulator, kDim, kDim, kDim, float> c;
    w::fragment<w::accumulator, kDim, kDim, kDim, float> d;
    w::load_matrix_sync(a, shared.a, kDim);
    w::load_matrix_sync(b, shared.b, kDim);
    w::load_matrix_sync(c, shared.c, kDim, w::mem_row_major);
    w::fill_fragment(d, 0.0F);
    w::mma_sync(d, a, b, d);
    for (int i = 0; i < d.num_elements; ++i) d.x[i] += c.x[i];
    gpu::sync_warp();
    w::store_matrix_sync(shared.c, d, kDim, w::mem_row_major);
    gpu::sync_warp();
    for (int i = gpu::lane_idx(); i < kMatrixElements; i += kLanes) out[i] = shared.c[i];
  }

  GPU_FN static void run(const Buffers& p, Shared& shared) {
    const auto& in = *static_cast<const WmmaInput*>(p.in);
    float* out = static_cast<float*>(p.out);
    multiply<gpu::wmma::row_major>(in, out, shared);
    multiply<gpu::wmma::col_major>(in, out + kMatrixElements, shared);
  }
};

}  // namespace GPU_BACKEND
}  // namespace conformance

// ldmatrix and mma over the registers of a whole warp.
#include "gpu/host/tensor_core/mma.hpp"

#include <array>
#include <cmath>
#include <cstring>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define GPU_HOST_FMA 1
#else
#define GPU_HOST_FMA 0
#endif

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/tensor_core/convert.hpp"
#include "gpu/host/tensor_core/fp8_codes.hpp"

namespace gpu::host {
namespace {

constexpr int kRowsA = 16;
constexpr int kColsB = 8;
constexpr int kMatrixRows = 8;  // of an ldmatrix matrix
constexpr std::uintptr_t kRowBytes = 16;

/// One lane's part in ldmatrix.
struct MatrixRow {
  uint4 row;
  std::uint32_t* r;
};

/// One lane's part in mma.
struct Multiply {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
  Fp8Types types;
  bool bfloat16 = false;
};

/// The 16-bit element of row `row` of matrix `matrix`.
std::uint32_t element(const Warp& warp, int matrix, int row, int column) {
  const auto& from = *static_cast<const MatrixRow*>(warp.arguments[matrix * kMatrixRows + row]);
  const std::uint32_t words[4] = {from.row.x, from.row.y, from.row.z, from.row.w};
  return words[column / 2] >> (column % 2 * 16) & 0xffffU;
}

template <bool kTransposed>
void deal_rows(Warp& warp) {
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    auto* r = static_cast<const MatrixRow*>(warp.arguments[lane])->r;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const std::uint32_t low =
          kTransposed ? element(warp, matrix, 2 * t, g) : element(warp, matrix, g, 2 * t);
      const std::uint32_t high =
          kTransposed ? element(warp, matrix, 2 * t + 1, g) : element(warp, matrix, g, 2 * t + 1);
      r[matrix] = low | high << 16;
    }
  }
}

/// One lane's part in stmatrix.
struct MatrixStore {
  const std::uint32_t* r;
  uint4 row;
};

void collect_rows(Warp& warp) {
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    const auto word = [&](int i) {
      const int holder = 4 * (lane % kMatrixRows) + i;
      return static_cast<const MatrixStore*>(warp.arguments[holder])->r[lane / kMatrixRows];
    };
    static_cast<MatrixStore*>(warp.arguments[lane])->row =
        uint4{word(0), word(1), word(2), word(3)};
  }
}

using CodeTable = std::array<float, 256>;

/// The operands of a warp's multiply as fp32 matrices.
template <int kDepth>
struct Operands {
  alignas(32) float a[kRowsA][kDepth];
  alignas(32) float b[kDepth][kColsB];
  alignas(32) float c[kRowsA][kColsB];
};

/// The elements of a register, neighbours along k: two halves, two bfloat16 or four FP8 codes.
template <int kPerWord>
std::array<float, kPerWord> unpack(std::uint32_t word, bool bfloat16, const CodeTable& values) {
  std::array<float, kPerWord> out;
  for (int i = 0; i < kPerWord; ++i) {
    if constexpr (kPerWord == 2) {
      const auto bits = static_cast<std::uint16_t>(word >> (16 * i));
      out[i] = bfloat16 ? std::bit_cast<float>(std::uint32_t{bits} << 16)
                        : half_to_float(half_from_bits(bits));
    } else {
      out[i] = values[word >> (8 * i) & 0xffU];
    }
  }
  return out;
}

/// Reads every lane's registers. kDepth is 16 for halves and 32 for FP8 codes; either way four
/// registers span half of it.
template <int kDepth>
void gather(const Warp& warp, Operands<kDepth>& m) {
  constexpr int kPerWord = kDepth / 8;
  const auto& first = *static_cast<const Multiply*>(warp.arguments[0]);
  const CodeTable& values_a = fp8_codes(first.types.a_is_e5m2).value;
  const CodeTable& values_b = fp8_codes(first.types.b_is_e5m2).value;
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    const auto& from = *static_cast<const Multiply*>(warp.arguments[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const auto row = unpack<kPerWord>(from.a[i], first.bfloat16, values_a);
      for (int k = 0; k < kPerWord; ++k) {
        m.a[g + 8 * (i % 2)][i / 2 * (kDepth / 2) + kPerWord * t + k] = row[k];
      }
    }
    for (int i = 0; i < 2; ++i) {
      const auto column = unpack<kPerWord>(from.b[i], first.bfloat16, values_b);
      for (int k = 0; k < kPerWord; ++k) m.b[i * (kDepth / 2) + kPerWord * t + k][g] = column[k];
    }
    for (int i = 0; i < 4; ++i) m.c[g + 8 * (i / 2)][2 * t + i % 2] = from.d[i];
  }
}

/// c += a b: in the order of k, one fused multiply-add each.
template <int kDepth>
void multiply_add(Operands<kDepth>& m) {
  for (int r = 0; r < kRowsA; ++r) {
#if GPU_HOST_FMA
    __m256 sum = _mm256_load_ps(m.c[r]);
    for (int k = 0; k < kDepth; ++k) {
      sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&m.a[r][k]), _mm256_load_ps(m.b[k]), sum);
    }
    _mm256_store_ps(m.c[r], sum);
#else
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < kColsB; ++n) m.c[r][n] = std::fma(m.a[r][k], m.b[k][n], m.c[r][n]);
    }
#endif
  }
}

template <int kDepth>
void multiply(Warp& warp) {
  Operands<kDepth> m;
  gather(warp, m);
  multiply_add(m);
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    float* d = static_cast<const Multiply*>(warp.arguments[lane])->d;
    for (int i = 0; i < 4; ++i) d[i] = m.c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

}  // namespace

void check_matrix_row(const void* row, const char* name, Location loc) {
  if (reinterpret_cast<std::uintptr_t>(row) % kRowBytes != 0) [[unlikely]] {
    fail_operand(name, "row address is not a multiple of 16 bytes", loc);
  }
  if (!current_fiber().block.shared().contains(row, kRowBytes)) [[unlikely]] {
    fail_operand(name, "row outside the block's shared memory", loc);
  }
}

void ldmatrix_x4(std::uint32_t (&r)[4], const uint4& row, const char* name, Location loc) {
  Fiber& me = current_fiber();
  MatrixRow mine{.row = row, .r = r};
  me.block.collective(me, {.name = name, .loc = loc}, deal_rows<false>, &mine);
}

void ldmatrix_x4_trans(std::uint32_t (&r)[4], const uint4& row, const char* name, Location loc) {
  Fiber& me = current_fiber();
  MatrixRow mine{.row = row, .r = r};
  me.block.collective(me, {.name = name, .loc = loc}, deal_rows<true>, &mine);
}

uint4 stmatrix_x4(const void* row, const std::uint32_t (&r)[4], const char* name, Location loc) {
  check_matrix_row(row, name, loc);
  Fiber& me = current_fiber();
  MatrixStore mine{.r = r, .row = {}};
  me.block.collective(me, {.name = name, .loc = loc}, collect_rows, &mine);
  return mine.row;
}

void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  bool bfloat16, Location loc) {
  Fiber& me = current_fiber();
  Multiply mine{.d = d, .a = a, .b = b, .types = {}, .bfloat16 = bfloat16};
  me.block.collective(me, {.name = "mma_m16n8k16", .loc = loc}, multiply<16>, &mine);
}

void mma_m16n8k32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const Fp8Types& types, Location loc) {
  Fiber& me = current_fiber();
  Multiply mine{.d = d, .a = a, .b = b, .types = types};
  me.block.collective(me, {.name = "mma_m16n8k32", .loc = loc}, multiply<32>, &mine);
}

}  // namespace gpu::host

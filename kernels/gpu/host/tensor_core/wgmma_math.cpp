#include "gpu/host/tensor_core/wgmma_math.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define GPU_HOST_AVX2 1
#else
#define GPU_HOST_AVX2 0
#endif

#include "gpu/host/tensor_core/convert.hpp"
#include "gpu/host/tensor_core/fp8_codes.hpp"

namespace gpu::host {
namespace {

/// Fractional bits of an aligned addend and of a result.
constexpr int kFractionBits = 13;
constexpr float kSteps = 1 << kFractionBits;
/// Clears what a result has no room for, of the 23 fractional bits of fp32.
constexpr std::uint32_t kResultMask = ~((1U << (23 - kFractionBits)) - 1);
constexpr std::uint32_t kExponentMask = 0x7f800000;
/// Sums whose largest addend is below this are zero: no product of FP8 codes is that small.
constexpr float kLeastScale = 0x1p-60F;
constexpr int kColumnsPadding = 32;

Fp8Codes make_codes(bool is_e5m2) {
  Fp8Codes codes{};
  for (unsigned code = 0; code < 256; ++code) {
    const std::uint16_t bits =
        is_e5m2 ? e5m2_to_half_bits(static_cast<std::uint8_t>(code)) : kE4M3ToHalfBits[code];
    const float x = half_to_float(half_from_bits(bits));
    const int least = is_e5m2 ? -14 : -6;
    codes.value[code] = x;
    codes.exponent[code] = kZeroExponent;
    if (std::isfinite(x) && x != 0) {
      codes.exponent[code] = static_cast<std::int8_t>(std::max(least, std::ilogb(x)));
    }
  }
  return codes;
}

/// The sum of one element in single fused multiply-adds.
float float_sum(const DecodedA& a, const DecodedB& b, int row, int col, float c) {
  for (int k = 0; k < kWgmmaDepth; ++k) {
    c = std::fma(a.value[row][k], b.value[static_cast<std::size_t>(k) * b.pitch + col], c);
  }
  return c;
}

#if GPU_HOST_AVX2
constexpr int kWidth = 8;

/// The largest exponent of the products of each of 32 columns.
__m256i largest_exponents(const std::int8_t* a, const DecodedB& b, int col) {
  __m256i largest = _mm256_set1_epi8(INT8_MIN);
  for (int k = 0; k < kWgmmaDepth; ++k) {
    const auto* row = b.exponent.data() + static_cast<std::size_t>(k) * b.pitch + col;
    const __m256i exponents = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    largest = _mm256_max_epi8(largest, _mm256_add_epi8(_mm256_set1_epi8(a[k]), exponents));
  }
  return largest;
}

/// 8 elements of a row. `exponents` are the products' largest.
__m256 hopper_sums(const float* a, const DecodedB& b, int col, const std::int8_t* exponents,
                   __m256 c) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents));
  const __m256i biased = _mm256_add_epi32(_mm256_cvtepi8_epi32(bytes), _mm256_set1_epi32(127));
  const __m256 of_products = _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  const __m256 of_c =
      _mm256_and_ps(c, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kExponentMask))));
  const __m256 scale = _mm256_max_ps(_mm256_max_ps(of_products, of_c), _mm256_set1_ps(kLeastScale));
  const __m256 steps = _mm256_div_ps(_mm256_set1_ps(kSteps), scale);
  __m256i sum = _mm256_cvttps_epi32(_mm256_mul_ps(c, steps));
  const float* column = b.value.data() + col;
  for (int k = 0; k < kWgmmaDepth; ++k, column += b.pitch) {
    const __m256 product = _mm256_mul_ps(_mm256_broadcast_ss(a + k), _mm256_loadu_ps(column));
    sum = _mm256_add_epi32(sum, _mm256_cvttps_epi32(_mm256_mul_ps(product, steps)));
  }
  const __m256 exact =
      _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(1 / kSteps)));
  return _mm256_and_ps(exact,
                       _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kResultMask))));
}

void hopper_row(const DecodedA& a, const DecodedB& b, int row, float* c) {
  alignas(32) std::int8_t exponents[kColumnsPadding];
  for (int col = 0; col < b.n; col += kWidth) {
    if (col % kColumnsPadding == 0) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(exponents),
                         largest_exponents(a.exponent[row], b, col));
    }
    const __m256 sums = hopper_sums(a.value[row], b, col, exponents + col % kColumnsPadding,
                                    _mm256_loadu_ps(c + col));
    _mm256_storeu_ps(c + col, sums);
  }
}

void float_row(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; col += kWidth) {
    __m256 sum = _mm256_loadu_ps(c + col);
    const float* column = b.value.data() + col;
    for (int k = 0; k < kWgmmaDepth; ++k, column += b.pitch) {
      sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&a.value[row][k]), _mm256_loadu_ps(column), sum);
    }
    _mm256_storeu_ps(c + col, sum);
  }
}
#else
float hopper_sum(const DecodedA& a, const DecodedB& b, int row, int col, float c) {
  float scale =
      std::max(kLeastScale, std::bit_cast<float>(std::bit_cast<std::uint32_t>(c) & kExponentMask));
  for (int k = 0; k < kWgmmaDepth; ++k) {
    const int exponent =
        a.exponent[row][k] + b.exponent[static_cast<std::size_t>(k) * b.pitch + col];
    scale = std::max(scale, std::ldexp(1.0F, exponent));
  }
  const float steps = kSteps / scale;
  auto sum = static_cast<std::int32_t>(c * steps);
  for (int k = 0; k < kWgmmaDepth; ++k) {
    const float product = a.value[row][k] * b.value[static_cast<std::size_t>(k) * b.pitch + col];
    sum += static_cast<std::int32_t>(product * steps);
  }
  const float exact = static_cast<float>(sum) * (scale / kSteps);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(exact) & kResultMask);
}

void hopper_row(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; ++col) {
    const bool finite = std::isfinite(float_sum(a, b, row, col, c[col]));
    c[col] = finite ? hopper_sum(a, b, row, col, c[col]) : c[col];
  }
}

void float_row(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; ++col) c[col] = float_sum(a, b, row, col, c[col]);
}
#endif

/// A row in which some addend is NaN or infinite: elements that meet it are what fp32 makes of it.
void hopper_row_with_specials(const DecodedA& a, const DecodedB& b, int row, float* c) {
  float in_float[kWgmmaMaxColumns];
  for (int col = 0; col < b.n; ++col) in_float[col] = float_sum(a, b, row, col, c[col]);
  hopper_row(a, b, row, c);
  for (int col = 0; col < b.n; ++col) {
    if (!std::isfinite(in_float[col])) c[col] = in_float[col];
  }
}

}  // namespace

const Fp8Codes& fp8_codes(bool is_e5m2) {
  static const Fp8Codes kTables[2] = {make_codes(false), make_codes(true)};
  return kTables[is_e5m2 ? 1 : 0];
}

void DecodedA::decode(const Chunk* chunks, bool is_e5m2) {
  const Fp8Codes& codes = fp8_codes(is_e5m2);
  std::uint8_t bytes[kWgmmaRows][kWgmmaDepth];
  std::memcpy(bytes, chunks, sizeof bytes);
  finite = true;
  for (int row = 0; row < kWgmmaRows; ++row) {
    for (int k = 0; k < kWgmmaDepth; ++k) {
      value[row][k] = codes.value[bytes[row][k]];
      exponent[row][k] = codes.exponent[bytes[row][k]];
      finite = finite && std::isfinite(value[row][k]);
    }
  }
}

void DecodedB::decode(const Chunk* chunks, int columns, bool is_e5m2) {
  const Fp8Codes& codes = fp8_codes(is_e5m2);
  n = columns;
  pitch = (columns + kColumnsPadding - 1) / kColumnsPadding * kColumnsPadding;
  value.assign(static_cast<std::size_t>(kWgmmaDepth) * pitch, 0.0F);
  exponent.assign(static_cast<std::size_t>(kWgmmaDepth) * pitch, kZeroExponent);
  finite = true;
  for (int col = 0; col < columns; ++col) {
    std::uint8_t bytes[kWgmmaDepth];
    std::memcpy(bytes, chunks + static_cast<std::size_t>(col) * kChunksPerRow, sizeof bytes);
    for (int k = 0; k < kWgmmaDepth; ++k) {
      const std::size_t at = static_cast<std::size_t>(k) * pitch + col;
      value[at] = codes.value[bytes[k]];
      exponent[at] = codes.exponent[bytes[k]];
      finite = finite && std::isfinite(value[at]);
    }
  }
}

void wgmma_multiply(const DecodedA& a, const DecodedB& b, bool accumulate,
                    fp8_sdpa::TensorCoreSums sums, float* c) {
  const bool operands_finite = a.finite && b.finite;
  for (int row = 0; row < kWgmmaRows; ++row, c += b.n) {
    if (!accumulate) std::fill_n(c, b.n, 0.0F);
    if (sums == fp8_sdpa::TensorCoreSums::kFloat) {
      float_row(a, b, row, c);
    } else if (operands_finite &&
               std::all_of(c, c + b.n, [](float x) { return std::isfinite(x); })) {
      hopper_row(a, b, row, c);
    } else {
      hopper_row_with_specials(a, b, row, c);
    }
  }
}

}  // namespace gpu::host

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
/// Of 16-bit operands: fractional bits of an aligned addend, and what is below every sum.
constexpr float kSteps16Bit = 1 << 25;
constexpr float kLeastScale16Bit = 0x1p-100F;

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
  for (int k = 0; k < a.depth; ++k) {
    c = std::fma(a.value[row][k], b.value[static_cast<std::size_t>(k) * b.pitch + col], c);
  }
  return c;
}

/// x cut off to fp32 towards zero.
float cut_off(double x) {
  constexpr std::uint64_t kMask = ~((std::uint64_t{1} << (52 - 23)) - 1);
  return static_cast<float>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & kMask));
}

/// 2^exponent of a finite value, with the exponent of the smallest normal number for subnormals; 0
/// of 0.
float power_of(float x, WgmmaType type) {
  const float least = type == WgmmaType::kHalf ? 0x1p-14F : 0x1p-126F;
  if (x == 0 || !std::isfinite(x)) return 0.0F;
  return std::max(least, std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & kExponentMask));
}

float value_of(std::uint16_t bits, WgmmaType type) {
  if (type == WgmmaType::kHalf) return half_to_float(half_from_bits(bits));
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
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
    for (int k = 0; k < a.depth; ++k, column += b.pitch) {
      sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&a.value[row][k]), _mm256_loadu_ps(column), sum);
    }
    _mm256_storeu_ps(c + col, sum);
  }
}

/// Sums of 32 products of signed bytes are exact in fp32.
void int8_row(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; col += kWidth) {
    __m256 sum = _mm256_setzero_ps();
    const float* column = b.value.data() + col;
    for (int k = 0; k < kWgmmaDepth; ++k, column += b.pitch) {
      sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&a.value[row][k]), _mm256_loadu_ps(column), sum);
    }
    auto* bits = reinterpret_cast<__m256i*>(c + col);
    _mm256_storeu_si256(bits, _mm256_add_epi32(_mm256_loadu_si256(bits), _mm256_cvttps_epi32(sum)));
  }
}

/// 8 elements of a row of 16-bit operands. Of 16 addends below 2^27 each, 8 fit an integer.
void hopper_row_16_bit(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; col += kWidth) {
    const __m256 old = _mm256_loadu_ps(c + col);
    __m256 scale = _mm256_max_ps(
        _mm256_set1_ps(kLeastScale16Bit),
        _mm256_and_ps(old,
                      _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kExponentMask)))));
    for (int k = 0; k < kWgmma16BitDepth; ++k) {
      const std::size_t at = static_cast<std::size_t>(k) * b.pitch + col;
      scale = _mm256_max_ps(scale, _mm256_mul_ps(_mm256_broadcast_ss(&a.power[row][k]),
                                                 _mm256_loadu_ps(b.power.data() + at)));
    }
    const __m256 steps = _mm256_div_ps(_mm256_set1_ps(kSteps16Bit), scale);
    __m256i sums[2] = {_mm256_cvttps_epi32(_mm256_mul_ps(old, steps)), _mm256_setzero_si256()};
    for (int k = 0; k < kWgmma16BitDepth; ++k) {
      const std::size_t at = static_cast<std::size_t>(k) * b.pitch + col;
      const __m256 product = _mm256_mul_ps(_mm256_broadcast_ss(&a.value[row][k]),
                                           _mm256_loadu_ps(b.value.data() + at));
      __m256i& sum = sums[k / (kWgmma16BitDepth / 2)];
      sum = _mm256_add_epi32(sum, _mm256_cvttps_epi32(_mm256_mul_ps(product, steps)));
    }
    alignas(32) std::int32_t parts[2][kWidth];
    alignas(32) float scales[kWidth];
    for (int i = 0; i < 2; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(parts[i]), sums[i]);
    }
    _mm256_store_ps(scales, scale);
    for (int i = 0; i < kWidth; ++i) {
      const double sum = static_cast<double>(parts[0][i]) + static_cast<double>(parts[1][i]);
      c[col + i] = cut_off(sum * (static_cast<double>(scales[i]) / kSteps16Bit));
    }
  }
}
#else
void int8_row(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; ++col) {
    const auto sum = static_cast<std::int32_t>(float_sum(a, b, row, col, 0.0F));
    c[col] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(c[col]) +
                                  static_cast<std::uint32_t>(sum));
  }
}

void hopper_row_16_bit(const DecodedA& a, const DecodedB& b, int row, float* c) {
  for (int col = 0; col < b.n; ++col) {
    if (!std::isfinite(float_sum(a, b, row, col, c[col]))) continue;
    float scale =
        std::max(kLeastScale16Bit,
                 std::bit_cast<float>(std::bit_cast<std::uint32_t>(c[col]) & kExponentMask));
    for (int k = 0; k < kWgmma16BitDepth; ++k) {
      const std::size_t at = static_cast<std::size_t>(k) * b.pitch + col;
      scale = std::max(scale, a.power[row][k] * b.power[at]);
    }
    const float steps = kSteps16Bit / scale;
    double sum = std::trunc(c[col] * steps);
    for (int k = 0; k < kWgmma16BitDepth; ++k) {
      const std::size_t at = static_cast<std::size_t>(k) * b.pitch + col;
      sum += std::trunc(a.value[row][k] * b.value[at] * steps);
    }
    c[col] = cut_off(sum * (static_cast<double>(scale) / kSteps16Bit));
  }
}

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

void hopper_row_of(const DecodedA& a, const DecodedB& b, int row, float* c) {
  if (is_16_bit(a.type)) {
    hopper_row_16_bit(a, b, row, c);
  } else {
    hopper_row(a, b, row, c);
  }
}

/// A row in which some addend is NaN or infinite: elements that meet it are what fp32 makes of it.
void hopper_row_with_specials(const DecodedA& a, const DecodedB& b, int row, float* c) {
  float in_float[kWgmmaMaxColumns];
  for (int col = 0; col < b.n; ++col) in_float[col] = float_sum(a, b, row, col, c[col]);
  hopper_row_of(a, b, row, c);
  for (int col = 0; col < b.n; ++col) {
    if (!std::isfinite(in_float[col])) c[col] = in_float[col];
  }
}

}  // namespace

const Fp8Codes& fp8_codes(bool is_e5m2) {
  static const Fp8Codes kTables[2] = {make_codes(false), make_codes(true)};
  return kTables[is_e5m2 ? 1 : 0];
}

void DecodedA::decode(const Chunk* chunks, WgmmaType of) {
  type = of;
  depth = is_16_bit(of) ? kWgmma16BitDepth : kWgmmaDepth;
  finite = true;
  const Fp8Codes& codes = fp8_codes(of == WgmmaType::kE5M2);
  std::uint8_t bytes[kWgmmaRows][kWgmmaStepBytes];
  std::memcpy(bytes, chunks, sizeof bytes);
  for (int row = 0; row < kWgmmaRows; ++row) {
    for (int k = 0; k < depth; ++k) {
      if (is_16_bit(of)) {
        const auto bits =
            static_cast<std::uint16_t>(bytes[row][2 * k] | bytes[row][2 * k + 1] << 8);
        value[row][k] = value_of(bits, of);
        power[row][k] = power_of(value[row][k], of);
      } else if (of == WgmmaType::kInt8) {
        value[row][k] = static_cast<std::int8_t>(bytes[row][k]);
      } else {
        value[row][k] = codes.value[bytes[row][k]];
        exponent[row][k] = codes.exponent[bytes[row][k]];
      }
      finite = finite && std::isfinite(value[row][k]);
    }
  }
}

void DecodedB::decode(const Chunk* chunks, int columns, WgmmaType of) {
  const Fp8Codes& codes = fp8_codes(of == WgmmaType::kE5M2);
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
      if (of == WgmmaType::kInt8) {
        value[at] = static_cast<std::int8_t>(bytes[k]);
        continue;
      }
      value[at] = codes.value[bytes[k]];
      exponent[at] = codes.exponent[bytes[k]];
      finite = finite && std::isfinite(value[at]);
    }
  }
}

void DecodedB::decode_n_major(const Chunk* chunks, int columns, WgmmaType of) {
  n = columns;
  pitch = (columns + kColumnsPadding - 1) / kColumnsPadding * kColumnsPadding;
  value.assign(static_cast<std::size_t>(kWgmma16BitDepth) * pitch, 0.0F);
  power.assign(static_cast<std::size_t>(kWgmma16BitDepth) * pitch, 0.0F);
  finite = true;
  const auto* bytes = reinterpret_cast<const unsigned char*>(chunks);
  for (int k = 0; k < kWgmma16BitDepth; ++k) {
    for (int col = 0; col < columns; ++col, bytes += 2) {
      const std::size_t at = static_cast<std::size_t>(k) * pitch + col;
      value[at] = value_of(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8), of);
      power[at] = power_of(value[at], of);
      finite = finite && std::isfinite(value[at]);
    }
  }
}

void wgmma_multiply(const DecodedA& a, const DecodedB& b, bool accumulate,
                    fp8_sdpa::TensorCoreSums sums, float* c) {
  const bool operands_finite = a.finite && b.finite;
  for (int row = 0; row < kWgmmaRows; ++row, c += b.n) {
    if (!accumulate) std::fill_n(c, b.n, 0.0F);
    if (a.type == WgmmaType::kInt8) {
      int8_row(a, b, row, c);
    } else if (sums == fp8_sdpa::TensorCoreSums::kFloat) {
      float_row(a, b, row, c);
    } else if (operands_finite &&
               std::all_of(c, c + b.n, [](float x) { return std::isfinite(x); })) {
      hopper_row_of(a, b, row, c);
    } else {
      hopper_row_with_specials(a, b, row, c);
    }
  }
}

}  // namespace gpu::host

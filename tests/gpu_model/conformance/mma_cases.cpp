// ldmatrix and mma: exact on bits and small integers, and within a tensor core's accumulation error
// on real numbers. And the conversions and permutes that kernels feed them with.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "gpu/host/executor/random.hpp"
#include "tests/gpu_model/conformance/case_builder.hpp"
#include "tests/gpu_model/conformance/expectations.hpp"

namespace conformance {
namespace {

/// Products stay below 2^4, sums below 2^8. Half: what lies more than about 24 bits below the
/// largest of a group is cut off, 17 addends.
constexpr double kHalfError = 17 * 0x1p-15;
/// FP8: Ada keeps about 13 fractional bits of the largest, 33 addends.
constexpr double kFp8Error = 33 * 0x1p-6;

struct MatrixFormat {
  const Format* format;
  int depth;
};

/// Codes of A (kMmaM x depth), of B as (kMmaN x depth), and C.
struct Operands {
  std::vector<unsigned> a;
  std::vector<unsigned> b;
  std::vector<float> c;
};

template <class DrawCode, class DrawFloat>
Operands operands(int depth, DrawCode code, DrawFloat value) {
  Operands m;
  for (int i = 0; i < kMmaM * depth; ++i) m.a.push_back(code());
  for (int i = 0; i < kMmaN * depth; ++i) m.b.push_back(code());
  for (int i = 0; i < kMmaM * kMmaN; ++i) m.c.push_back(value());
  return m;
}

template <class Element>
std::vector<std::byte> packed(const Operands& m) {
  std::vector<Element> codes(m.a.begin(), m.a.end());
  codes.insert(codes.end(), m.b.begin(), m.b.end());
  std::vector<std::byte> bytes = to_bytes(codes);
  const auto c = to_bytes(m.c);
  bytes.insert(bytes.end(), c.begin(), c.end());
  return bytes;
}

/// A B + C in double, A's and B's codes read in these formats.
std::vector<float> product(const Operands& m, int depth, const Format& format_a,
                           const Format& format_b) {
  std::vector<float> result;
  for (int row = 0; row < kMmaM; ++row) {
    for (int col = 0; col < kMmaN; ++col) {
      double sum = m.c[row * kMmaN + col];
      for (int k = 0; k < depth; ++k) {
        sum += decode(format_a, m.a[row * depth + k]) * decode(format_b, m.b[col * depth + k]);
      }
      result.push_back(static_cast<float>(sum));
    }
  }
  return result;
}

std::vector<float> products_of_all_pairs(const Operands& m) {
  std::vector<float> result;
  for (const auto& [a, b] : {std::pair{&kE4M3, &kE4M3}, std::pair{&kE4M3, &kE5M2},
                             std::pair{&kE5M2, &kE4M3}, std::pair{&kE5M2, &kE5M2}}) {
    const auto one = product(m, kMmaFp8K, *a, *b);
    result.insert(result.end(), one.begin(), one.end());
  }
  return result;
}

/// What lane `lane` gets of each matrix: 8 x 8 elements, element (row, col) = 8 * row + col of it.
std::vector<std::uint32_t> dealt(const std::vector<std::uint16_t>& elements) {
  std::vector<std::uint32_t> words;
  const auto at = [&](int matrix, int row, int col) {
    return std::uint32_t{elements[(matrix * kLdmatrixRows + row) * kLdmatrixRows + col]};
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < kLdmatrixMatrices; ++i) {
      words.push_back(at(i, g, 2 * t) | at(i, g, 2 * t + 1) << 16);
    }
    for (int i = 0; i < kLdmatrixMatrices; ++i) {
      words.push_back(at(i, 2 * t, g) | at(i, 2 * t + 1, g) << 16);
    }
  }
  return words;
}

void add_fp8_mma_cases(std::vector<Case>& all, gpu::host::Random& random) {
  // Codes whose values are integers of at most 8 in both formats: E4M3 0x38 is 1, E5M2 0x3c is 1.
  // Read as the other format they are 0.125 to 16 in steps that sums of 32 keep exactly.
  constexpr std::array<unsigned, 6> kPlain = {0x00, 0x38, 0x3c, 0x40, 0xb8, 0xc0};
  const auto plain = operands(
      kMmaFp8K, [&] { return kPlain[random.below(kPlain.size())]; },
      [&] { return static_cast<float>(random.below(33)) - 16.0F; });
  all.push_back(make_case("mma_fp8_exact", Primitive::kMmaFp8, packed<std::uint8_t>(plain),
                          products_of_all_pairs(plain), 0));
  // Below 4 in E4M3 and E5M2 alike, either sign.
  const auto reals = operands(
      kMmaFp8K, [&] { return random.below(0x40) | random.below(2) << 7; },
      [&] { return static_cast<float>(random.below(1U << 20)) * 0x1p-18F; });
  all.push_back(make_case("mma_fp8_reals", Primitive::kMmaFp8, packed<std::uint8_t>(reals),
                          products_of_all_pairs(reals), 0, Within{0, kFp8Error},
                          Within{0, kFp8Error}));
  for (auto it = all.end() - 2; it != all.end(); ++it) it->min_sm_version = 89;
}

/// Four codes at a time: every code in every place, next to others.
std::vector<std::uint32_t> codes_in_every_place() {
  std::vector<std::uint32_t> words;
  for (unsigned code = 0; code < 256; ++code) {
    words.push_back(code | (255 - code) << 8 | (code ^ 0x80U) << 16 | ((code + 77) & 255U) << 24);
  }
  return words;
}

std::vector<std::uint64_t> as_halves(const Format& format) {
  std::vector<std::uint64_t> halves;
  for (const std::uint32_t word : codes_in_every_place()) {
    std::uint64_t four = 0;
    for (int i = 0; i < 4; ++i) {
      four |= std::uint64_t{nearest_half(decode(format, word >> (8 * i) & 0xff))} << (16 * i);
    }
    halves.push_back(four);
  }
  return halves;
}

/// The code nearest to x: ties to even codes, the largest finite one past it, NaN stays NaN.
unsigned nearest_fp8(const Format& format, float x) {
  const unsigned nan = 0x7f;
  const unsigned largest = format.has_infinity ? 0x7b : 0x7e;
  if (std::isnan(x)) return nan;
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  const double magnitude = std::min<double>(std::fabs(x), decode(format, largest));
  unsigned best = 0;
  for (unsigned code = 1; code <= largest; ++code) {
    const double error = std::fabs(decode(format, code) - magnitude);
    const double least = std::fabs(decode(format, best) - magnitude);
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return sign | best;
}

/// Every finite FP8 value, the midpoint to the next one and both of its neighbours; then far ends.
std::vector<float> floats_around(const Format& format) {
  const unsigned largest = format.has_infinity ? 0x7b : 0x7e;
  std::vector<float> floats;
  for (unsigned code = 0; code <= largest; ++code) {
    const auto x = static_cast<float>(decode(format, code));
    const auto next = static_cast<float>(decode(format, code + 1 <= largest ? code + 1 : code));
    const float middle = x + (next - x) / 2;
    floats.insert(floats.end(), {x, middle, std::nextafter(middle, 1e9F),
                                 std::nextafter(middle, -1e9F), -x, -middle});
  }
  for (const float x :
       {464.0F, 480.0F, 6e4F, 7e4F, 1e30F, std::numeric_limits<float>::infinity(), 1e-30F}) {
    floats.insert(floats.end(), {x, -x});
  }
  floats.insert(floats.end(), {std::nanf(""), 1.0F});
  return floats;
}

Case float2_to_fp8x2_case(const char* name, Primitive primitive, const Format& format) {
  const auto floats = floats_around(format);
  std::vector<std::uint16_t> codes;
  for (std::size_t i = 0; i < floats.size(); i += 2) {
    codes.push_back(static_cast<std::uint16_t>(nearest_fp8(format, floats[i]) |
                                               nearest_fp8(format, floats[i + 1]) << 8));
  }
  return make_case(name, primitive, floats, codes, static_cast<int>(codes.size()));
}

/// Of every half. Magnitudes go up, so that the nearest code does too.
std::vector<std::uint8_t> e4m3_of_halves() {
  constexpr unsigned kSign = 0x8000;
  constexpr unsigned kLargest = 0x7e;
  std::vector<std::uint8_t> codes(2 * kSign);
  unsigned best = 0;
  for (unsigned half = 0; half < kSign; ++half) {
    const double x = decode(kHalf, half);
    for (; best < kLargest; ++best) {
      const double middle = (decode(kE4M3, best) + decode(kE4M3, best + 1)) / 2;
      if (!(x > middle || (x == middle && best % 2 != 0))) break;
    }
    codes[half] = static_cast<std::uint8_t>(std::isnan(x) ? 0x7f : best);
    codes[half | kSign] = static_cast<std::uint8_t>(std::isnan(x) ? 0x7f : best | 0x80);
  }
  return codes;
}

/// All halves, neighbours in a word far apart in value.
Case half4_to_e4m3x4_case() {
  constexpr unsigned kHalves = 1U << 16;
  constexpr unsigned kOddStep = 23173;
  const auto codes = e4m3_of_halves();
  std::vector<std::uint16_t> halves;
  std::vector<std::uint8_t> expected;
  for (unsigned i = 0; i < kHalves; ++i) {
    halves.push_back(static_cast<std::uint16_t>(i * kOddStep));
    expected.push_back(codes[halves.back()]);
  }
  return make_case("half4_to_e4m3x4", Primitive::kHalf4ToE4M3x4, halves, expected, kHalves / 4);
}

void add_operand_cases(std::vector<Case>& all, gpu::host::Random& random) {
  const auto words = codes_in_every_place();
  const auto count = static_cast<int>(words.size());
  all.push_back(
      make_case("e4m3x4_to_half4", Primitive::kE4M3x4ToHalf4, words, as_halves(kE4M3), count));
  all.push_back(
      make_case("e5m2x4_to_half4", Primitive::kE5M2x4ToHalf4, words, as_halves(kE5M2), count));
  all.push_back(float2_to_fp8x2_case("float2_to_e4m3x2", Primitive::kFloat2ToE4M3x2, kE4M3));
  all.push_back(float2_to_fp8x2_case("float2_to_e5m2x2", Primitive::kFloat2ToE5M2x2, kE5M2));
  all.push_back(half4_to_e4m3x4_case());
  std::vector<std::array<std::uint32_t, 3>> permutes;
  std::vector<std::uint32_t> permuted;
  for (const std::uint32_t selector : {0x3210U, 0x7654U, 0x6420U, 0x7531U, 0x1404U, 0x0123U}) {
    const auto a = static_cast<std::uint32_t>(random.below(1U << 31));
    const auto b = static_cast<std::uint32_t>(random.below(1U << 31));
    permutes.push_back({a, b, selector});
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const unsigned from = selector >> (4 * i) & 0xf;
      result |= ((from < 4 ? a >> (8 * from) : b >> (8 * (from - 4))) & 0xff) << (8 * i);
    }
    permuted.push_back(result);
  }
  all.push_back(
      make_case("prmt", Primitive::kPrmt, permutes, permuted, static_cast<int>(permuted.size())));
}

}  // namespace

void add_mma_cases(std::vector<Case>& all) {
  gpu::host::Random random(12);
  std::vector<std::uint16_t> elements;
  for (int i = 0; i < kLdmatrixMatrices * kLdmatrixRows * kLdmatrixRows; ++i) {
    elements.push_back(static_cast<std::uint16_t>(random.below(1U << 16)));
  }
  all.push_back(make_case("ldmatrix", Primitive::kLdmatrix, elements, dealt(elements), 0));

  // stmatrix undoes ldmatrix; what is dealt transposed it leaves alone.
  all.push_back(make_case("stmatrix", Primitive::kStmatrix, dealt(elements), elements, 0));
  all.back().min_sm_version = 90;

  const auto integer = [&] { return static_cast<int>(random.below(33)) - 16; };
  const auto integers = operands(
      kMmaHalfK, [&] { return nearest_half(integer()); },
      [&] { return static_cast<float>(integer()); });
  all.push_back(make_case("mma_half_exact", Primitive::kMmaHalf, packed<std::uint16_t>(integers),
                          product(integers, kMmaHalfK, kHalf, kHalf), 0));
  const auto real = [&] { return static_cast<int>(random.below(1U << 24)) * 0x1p-21 - 4.0; };
  const auto reals = operands(
      kMmaHalfK, [&] { return nearest_half(real()); }, [&] { return static_cast<float>(real()); });
  all.push_back(make_case("mma_half_reals", Primitive::kMmaHalf, packed<std::uint16_t>(reals),
                          product(reals, kMmaHalfK, kHalf, kHalf), 0, Within{0, kHalfError},
                          Within{0, kHalfError}));
  const auto wide = operands(
      kMmaHalfK, [&] { return nearest_bfloat16(static_cast<float>(real())); },
      [&] { return static_cast<float>(real()); });
  all.push_back(make_case("mma_bfloat16", Primitive::kMmaBFloat16, packed<std::uint16_t>(wide),
                          product(wide, kMmaHalfK, kBFloat16, kBFloat16), 0, Within{0, kHalfError},
                          Within{0, kHalfError}));
  add_fp8_mma_cases(all, random);
  add_operand_cases(all, random);
}

}  // namespace conformance

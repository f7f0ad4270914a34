// Floating-point instructions: special values, and the range that softmax uses.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "gpu/host/executor/random.hpp"
#include "tests/gpu_model/conformance/case_builder.hpp"
#include "tests/gpu_model/conformance/expectations.hpp"

namespace conformance {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMin = std::numeric_limits<float>::min();
constexpr float kSubnormal = kMin / 8;

/// The error that PTX states for ex2.approx.ftz.f32 and lg2.approx.ftz.f32.
const double kApproxError = std::ldexp(1.0, -22);

constexpr int kRandomInputs = 1 << 16;

std::vector<float> special_values() {
  return {0.0F,
          -0.0F,
          1.0F,
          -1.0F,
          2.0F,
          0.5F,
          kInfinity,
          -kInfinity,
          kNan,
          kSubnormal,
          -kSubnormal,
          kMin,
          -kMin,
          std::numeric_limits<float>::max(),
          std::numeric_limits<float>::lowest()};
}

/// Uniform in [low, high).
std::vector<float> uniform(float low, float high, int count, std::uint64_t seed) {
  gpu::host::Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& x : values) {
    x = low + (high - low) * static_cast<float>(random.below(1U << 24)) * 0x1p-24F;
  }
  return values;
}

void append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

float flushed(double x) {
  return std::fabs(x) < kMin ? static_cast<float>(std::copysign(0.0, x)) : static_cast<float>(x);
}

Case exp2_case() {
  std::vector<float> in = special_values();
  append(in, uniform(-130.0F, 2.0F, kRandomInputs, 1));
  append(in, uniform(-1.0F, 0.0F, kRandomInputs, 2));
  append(in, {-126.0F, -127.0F, -149.0F, 127.0F, 128.0F, 129.0F});
  std::vector<float> expected;
  for (const float x : in) expected.push_back(flushed(std::exp2(static_cast<double>(x))));
  const auto count = static_cast<int>(in.size());
  // A result just below the smallest normal is flushed on one side and may be rounded up to it on
  // the other.
  return make_case("exp2_approx", Primitive::kExp2, in, expected, count, Within{kApproxError, kMin},
                   Within{2 * kApproxError, kMin});
}

Case log2_case() {
  std::vector<float> in = special_values();
  append(in, uniform(0.0F, 4.0F, kRandomInputs, 3));
  append(in, uniform(0.9F, 1.1F, kRandomInputs, 4));
  append(in, uniform(1.0F, 1e6F, kRandomInputs, 5));
  std::vector<float> expected;
  for (const float x : in) {
    expected.push_back(static_cast<float>(std::log2(static_cast<double>(flushed(x)))));
  }
  const auto count = static_cast<int>(in.size());
  return make_case("log2_approx", Primitive::kLog2, in, expected, count,
                   Within{kApproxError, kApproxError}, Within{2 * kApproxError, 2 * kApproxError});
}

Case max_nan_case() {
  std::vector<float> values = special_values();
  append(values, uniform(-10.0F, 10.0F, 50, 6));
  std::vector<float> in;
  std::vector<float> expected;
  for (const float a : values) {
    for (const float b : values) {
      append(in, {a, b});
      const bool nan = std::isnan(a) || std::isnan(b);
      const bool zeros = a == 0 && b == 0;
      const float larger = a > b ? a : b;
      const float zero = std::signbit(a) && std::signbit(b) ? -0.0F : 0.0F;
      expected.push_back(nan ? kNan : zeros ? zero : larger);
    }
  }
  const auto count = static_cast<int>(expected.size());
  return make_case("max_nan", Primitive::kMaxNan, in, expected, count);
}

/// Multiples of 2^-12 below 2^12: products and their sums with a third are exact in double, so one
/// conversion to float is the only rounding.
/// Of normal numbers, with a normal quotient: subnormals are the device's own affair.
Case divide_case() {
  std::vector<float> in = {0.0F, 3.0F, -1.0F, kInfinity, 1.0F, 0.0F, kNan, 1.0F, 0.0F, 0.0F};
  append(in, uniform(-1e3F, 1e3F, kRandomInputs, 8));
  std::vector<float> expected;
  for (std::size_t i = 0; i < in.size(); i += 2) {
    expected.push_back(static_cast<float>(static_cast<double>(in[i]) / in[i + 1]));
  }
  return make_case("divide", Primitive::kDivide, in, expected, static_cast<int>(expected.size()));
}

Case fma_case() {
  gpu::host::Random random(7);
  std::vector<float> in;
  std::vector<float> expected;
  for (int i = 0; i < kRandomInputs; ++i) {
    float x[3];
    for (auto& factor : x) {
      factor = (static_cast<float>(random.below(1U << 24)) - 0x1p23F) * 0x1p-12F;
    }
    append(in, {x[0], x[1], x[2], 0.0F});
    expected.push_back(static_cast<float>(static_cast<double>(x[0]) * x[1] + x[2]));
  }
  return make_case("fma", Primitive::kFma, in, expected, kRandomInputs);
}

using HalfTriple = std::array<std::uint16_t, 3>;

/// Ends of ranges and what lies next to them, either sign.
std::vector<std::uint16_t> special_halves() {
  std::vector<std::uint16_t> halves;
  for (const unsigned magnitude :
       {0x0000U, 0x0001U, 0x0002U, 0x0003U, 0x03ffU, 0x0400U, 0x0401U, 0x1000U, 0x1400U, 0x3555U,
        0x37ffU, 0x3800U, 0x3bffU, 0x3c00U, 0x3c01U, 0x3dffU, 0x4000U, 0x57ffU, 0x5800U, 0x77ffU,
        0x7800U, 0x7bfeU, 0x7bffU, 0x7c00U, 0x7c01U, 0x7dffU, 0x7e00U, 0x7fffU}) {
    halves.push_back(static_cast<std::uint16_t>(magnitude));
    halves.push_back(static_cast<std::uint16_t>(magnitude | 0x8000U));
  }
  return halves;
}

/// Special values with each other; then random ones: any bits, subnormal factors or addends, sums
/// that cancel to a few last bits of the product or less, and products near half of the addend's
/// last bit.
std::vector<HalfTriple> half_triples() {
  std::vector<HalfTriple> triples;
  const auto special = special_halves();
  for (const auto a : special) {
    for (const auto b : special) {
      for (const auto c : special) triples.push_back({a, b, c});
    }
  }
  gpu::host::Random random(8);
  const auto below = [&](unsigned bound) {
    return static_cast<std::uint16_t>(random.below(bound));
  };
  const auto any = [&] { return below(1U << 16); };
  const auto subnormal = [&] { return static_cast<std::uint16_t>(any() & 0x83ffU); };
  for (int i = 0; i < kRandomInputs; ++i) {
    triples.push_back({any(), any(), any()});
    triples.push_back({subnormal(), any(), any()});
    triples.push_back({any(), any(), subnormal()});
    HalfTriple x = {any(), any(), 0};
    const std::uint16_t product = exact_half_fma(x[0], x[1], 0);
    x[2] = static_cast<std::uint16_t>((product ^ 0x8000U) + below(5) - 2);
    triples.push_back(x);
    // Factors that differ from powers of two, or from 1.5 times them, in their last bits.
    constexpr unsigned kExponents = 0xfc00;
    for (std::uint16_t* factor : {&x[0], &x[1]}) {
      *factor = static_cast<std::uint16_t>((any() & kExponents) + below(2) * 0x200U + below(5) - 2);
    }
    const int exponent = (x[0] >> 10 & 0x1f) + (x[1] >> 10 & 0x1f) - 15 + 11;
    x[2] = static_cast<std::uint16_t>((any() & 0x83ffU) |
                                      static_cast<unsigned>(std::clamp(exponent, 0, 30)) << 10);
    triples.push_back(x);
  }
  if (triples.size() % 2 != 0) triples.push_back({});
  return triples;
}

Case fma_half2_case() {
  const auto triples = half_triples();
  std::vector<std::array<std::uint32_t, 3>> in;
  std::vector<std::uint32_t> expected;
  const auto both = [](std::uint16_t low, std::uint16_t high) {
    return std::uint32_t{high} << 16 | low;
  };
  for (std::size_t i = 0; i < triples.size(); i += 2) {
    const HalfTriple& x = triples[i];
    const HalfTriple& y = triples[i + 1];
    in.push_back({both(x[0], y[0]), both(x[1], y[1]), both(x[2], y[2])});
    expected.push_back(both(exact_half_fma(x[0], x[1], x[2]), exact_half_fma(y[0], y[1], y[2])));
  }
  const auto count = static_cast<int>(expected.size());
  return make_case("fma_half2", Primitive::kFmaHalf2, in, expected, count);
}

}  // namespace

void add_math_cases(std::vector<Case>& all) {
  all.push_back(exp2_case());
  all.push_back(log2_case());
  all.push_back(max_nan_case());
  all.push_back(divide_case());
  all.push_back(fma_case());
  all.push_back(fma_half2_case());
}

}  // namespace conformance

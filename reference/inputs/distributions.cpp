#include "reference/inputs/distributions.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

namespace fp8_sdpa::reference {
namespace {

/// Horner's rule, coefficients from the constant term up; one fma per step.
template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double value = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) value = std::fma(value, x, coefficients[i]);
  return value;
}

// AS 241, PPND16: A / B near the median, C / D in the tails. Its third pair serves p < 1e-11,
// beyond what 32 random bits reach.
constexpr std::array kCentreNumerator = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                         1.9715909503065514427e3, 1.3731693765509461125e4,
                                         4.5921953931549871457e4, 6.7265770927008700853e4,
                                         3.3430575583588128105e4, 2.5090809287301226727e3};
constexpr std::array kCentreDenominator = {1.0,
                                           4.2313330701600911252e1,
                                           6.8718700749205790830e2,
                                           5.3941960214247511077e3,
                                           2.1213794301586595867e4,
                                           3.9307895800092710610e4,
                                           2.8729085735721942674e4,
                                           5.2264952788528545610e3};
constexpr std::array kTailNumerator = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                       5.76949722146069140550e0,  3.64784832476320460504e0,
                                       1.27045825245236838258e0,  2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array kTailDenominator = {1.0,
                                         2.05319162663775882187e0,
                                         1.67638483018380384940e0,
                                         6.89767334985100004550e-1,
                                         1.48103976427480074590e-1,
                                         1.51986665636164571966e-2,
                                         5.47593808499534494600e-4,
                                         1.05075007164441684324e-9};

}  // namespace

float uniform_from_word(std::uint32_t word, double low, double high) {
  constexpr int kDropped = 8;
  constexpr double kUnit = 0x1p-24;
  const double fraction = static_cast<double>(word >> kDropped) * kUnit;
  const auto value = static_cast<float>(std::fma(high - low, fraction, low));
  // Rounding to float may reach the excluded end.
  const auto end = static_cast<float>(high);
  return value < end ? value : std::nextafter(end, -std::numeric_limits<float>::infinity());
}

double portable_log(double x) {
  constexpr int kMantissaBits = 52;
  constexpr int kBias = 1023;
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << kMantissaBits) - 1;
  constexpr std::uint64_t kOne = static_cast<std::uint64_t>(kBias) << kMantissaBits;
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1),
  // |s| < 0.172, whose series in s^2 is cut where its terms fall below 2^-53.
  constexpr std::array kAtanh = {1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,
                                 1.0 / 9.0,  1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0,
                                 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0};
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> kMantissaBits) - kBias;
  auto m = std::bit_cast<double>((bits & kMantissa) | kOne);
  if (m > kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  return std::fma(static_cast<double>(exponent), kLn2, 2.0 * s * polynomial(kAtanh, s * s));
}

double normal_quantile(double p) {
  constexpr double kCentre = 0.425;
  constexpr double kCentreSquared = 0.180625;
  constexpr double kTailOffset = 1.6;
  const double q = p - 0.5;
  if (std::fabs(q) <= kCentre) {
    const double r = std::fma(-q, q, kCentreSquared);
    return q * (polynomial(kCentreNumerator, r) / polynomial(kCentreDenominator, r));
  }
  const double tail = q < 0.0 ? p : 1.0 - p;
  const double r = std::sqrt(-portable_log(tail)) - kTailOffset;
  const double z = polynomial(kTailNumerator, r) / polynomial(kTailDenominator, r);
  return q < 0.0 ? -z : z;
}

float normal_from_word(std::uint32_t word, double mean, double stddev) {
  constexpr double kUnit = 0x1p-32;
  const double p = (static_cast<double>(word) + 0.5) * kUnit;  // exact: 33 bits
  return static_cast<float>(std::fma(stddev, normal_quantile(p), mean));
}

}  // namespace fp8_sdpa::reference

// Random words to real numbers, with the same bits on every platform: no libm function but fma and
// sqrt, which IEEE 754 rounds correctly. Each multiply-add is written as an fma, so that a compiler
// has nothing left to contract.
#pragma once

#include <cstdint>

namespace fp8_sdpa::reference {

/// Uniform in [low, high), from the upper 24 bits of `word`. @pre low < high, both finite.
float uniform_from_word(std::uint32_t word, double low, double high);

/// Normal, by the inverse of its distribution function at (word + 1/2) / 2^32; |z| < 6.4 standard
/// deviations. Source: Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988).
float normal_from_word(std::uint32_t word, double mean, double stddev);

/// The quantile function of the unit normal distribution. @pre 2^-33 <= p <= 1 - 2^-33.
/// Relative error about 1e-15.
double normal_quantile(double p);

/// Natural logarithm from arithmetic alone. @pre x is positive, finite and not subnormal.
/// Relative error below 1e-14.
double portable_log(double x);

}  // namespace fp8_sdpa::reference

// Vectors of numbers, as g++ has them, and which of them this CPU has. Whoever uses them compiles
// one function for each, with __attribute__((target)), and picks by widest_vectors(): target_clones
// needs an ifunc, which runs before a sanitizer's runtime is up. Reference code is compiled without
// contraction, so that its sums are the same bits by all of them.
#pragma once

#include <cstdint>

namespace fp8_sdpa::reference {

/// kLanes numbers in one or several registers. Each by name: g++ 12 drops a vector_size that
/// depends on a template parameter.
template <class T, int kLanes>
struct VectorOf;
template <>
struct VectorOf<double, 4> {
  using Type = double __attribute__((vector_size(4 * sizeof(double))));
};
template <>
struct VectorOf<double, 8> {
  using Type = double __attribute__((vector_size(8 * sizeof(double))));
};
template <>
struct VectorOf<float, 8> {
  using Type = float __attribute__((vector_size(8 * sizeof(float))));
};
template <>
struct VectorOf<float, 16> {
  using Type = float __attribute__((vector_size(16 * sizeof(float))));
};

enum class Vectors : std::uint8_t { kBaseline, kAvx2, kAvx512 };

inline Vectors widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Vectors::kAvx512;
  if (__builtin_cpu_supports("avx2")) return Vectors::kAvx2;
#endif
  return Vectors::kBaseline;
}

}  // namespace fp8_sdpa::reference

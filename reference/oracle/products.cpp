#include "reference/oracle/products.hpp"

#include <cmath>

namespace fp8_sdpa::reference {
namespace {

template <int kLanes>
__attribute__((always_inline)) inline void add(const float* row, const float* matrix,
                                               std::size_t stride, std::size_t depth,
                                               std::size_t columns, float* out) {
  using Vector = typename VectorOf<float, kLanes>::Type;
  constexpr std::size_t kVectors = 4;
  constexpr std::size_t kBlock = kVectors * kLanes;  // columns whose sums stay in registers
  std::size_t first = 0;
  for (; first + kBlock <= columns; first += kBlock) {
    Vector sums[kVectors];
    __builtin_memcpy(sums, out + first, sizeof sums);
    for (std::size_t k = 0; k < depth; ++k) {
      for (std::size_t c = 0; c < kVectors; ++c) {
        Vector values;  // one at a time: as an array it would go through memory
        __builtin_memcpy(&values, matrix + k * stride + first + c * kLanes, sizeof values);
        sums[c] += row[k] * values;
      }
    }
    __builtin_memcpy(out + first, sums, sizeof sums);
  }
  for (std::size_t k = 0; k < depth; ++k) {
    for (std::size_t c = first; c < columns; ++c) out[c] += row[k] * matrix[k * stride + c];
  }
}

void add_baseline(const float* row, const float* matrix, std::size_t stride, std::size_t depth,
                  std::size_t columns, float* out) {
  add<8>(row, matrix, stride, depth, columns, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void add_avx2(const float* row, const float* matrix,
                                              std::size_t stride, std::size_t depth,
                                              std::size_t columns, float* out) {
  add<8>(row, matrix, stride, depth, columns, out);
}
__attribute__((target("avx512f"))) void add_avx512(const float* row, const float* matrix,
                                                   std::size_t stride, std::size_t depth,
                                                   std::size_t columns, float* out) {
  add<16>(row, matrix, stride, depth, columns, out);
}
#endif

}  // namespace

void add_products(const float* row, const float* matrix, std::size_t stride, std::size_t depth,
                  std::size_t columns, float* out, Vectors vectors) {
#if defined(__x86_64__)
  if (vectors == Vectors::kAvx512) return add_avx512(row, matrix, stride, depth, columns, out);
  if (vectors == Vectors::kAvx2) return add_avx2(row, matrix, stride, depth, columns, out);
#else
  static_cast<void>(vectors);
#endif
  add_baseline(row, matrix, stride, depth, columns, out);
}

float add_truncated(float sum, const float* a, const float* b, int count) {
  constexpr int kFractionBits = 13;
  double largest = std::fabs(static_cast<double>(sum));
  for (int i = 0; i < count; ++i) {
    const double product = std::fabs(static_cast<double>(a[i]) * b[i]);
    if (!(product <= largest)) largest = product;
  }
  if (largest == 0.0 || !std::isfinite(largest)) {
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
  }
  const double step = std::ldexp(1.0, std::ilogb(largest) - kFractionBits);
  const double per_step = 1.0 / step;
  double steps = std::trunc(sum * per_step);
  for (int i = 0; i < count; ++i) {
    steps += std::trunc(static_cast<double>(a[i]) * b[i] * per_step);
  }
  return static_cast<float>(steps * step);
}

}  // namespace fp8_sdpa::reference

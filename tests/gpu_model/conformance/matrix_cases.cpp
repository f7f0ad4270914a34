// wmma with both layouts of B: exact on small integers, and within the accumulation error
// of a tensor core on real numbers.
#include <cstdint>
#include <ostream>

#include "gpu/host/executor/random.hpp"
#include "tests/gpu_model/conformance/case_builder.hpp"
#include "tests/gpu_model/conformance/expectations.hpp"

namespace conformance {
namespace {

/// Tensor cores align a group's products to the largest and cut off what lies more than about 24
/// bits below it. Products and sums stay below 2^8, so 16 of them err by no more than 16 x 2^(8 -
/// 23).
constexpr double kTensorCoreError = 0x1p-11;
/// Sums in fp32, rounded to nearest, 17 of them.
constexpr double kHostError = 17 * 0x1p-16;

struct Matrices {
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> c;
};

template <class Draw>
Matrices matrices(Draw draw) {
  Matrices m;
  for (auto* matrix : {&m.a, &m.b, &m.c}) {
    for (int i = 0; i < kMatrixElements; ++i) matrix->push_back(draw());
  }
  return m;
}

/// A and B as halves, C as floats.
std::vector<std::byte> packed(const Matrices& m) {
  std::vector<std::uint16_t> halves;
  for (const double x : m.a) halves.push_back(nearest_half(x));
  for (const double x : m.b) halves.push_back(nearest_half(x));
  std::vector<std::byte> bytes = to_bytes(halves);
  const auto c = to_bytes(std::vector<float>(m.c.begin(), m.c.end()));
  bytes.insert(bytes.end(), c.begin(), c.end());
  return bytes;
}

/// A B + C in double, as often as there are layouts.
std::vector<float> product(const Matrices& m) {
  std::vector<float> result;
  for (int layout = 0; layout < kWmmaLayouts; ++layout) {
    for (int row = 0; row < kMatrixDim; ++row) {
      for (int col = 0; col < kMatrixDim; ++col) {
        double sum = m.c[row * kMatrixDim + col];
        for (int k = 0; k < kMatrixDim; ++k) {
          sum += m.a[row * kMatrixDim + k] * m.b[k * kMatrixDim + col];
        }
        result.push_back(static_cast<float>(sum));
      }
    }
  }
  return result;
}

}  // namespace

void add_matrix_cases(std::vector<Case>& all) {
  gpu::host::Random random(11);
  const auto integers = matrices([&] { return static_cast<int>(random.below(33)) - 16.0; });
  all.push_back(
      make_case("wmma_integers", Primitive::kWmma, packed(integers), product(integers), 0));
  const auto reals = matrices([&] {
    const double uniform = static_cast<int>(random.below(1U << 24)) * 0x1p-21 - 4.0;
    return decode(kHalf, nearest_half(uniform));
  });
  all.push_back(make_case("wmma_reals", Primitive::kWmma, packed(reals), product(reals), 0,
                          Within{0, kTensorCoreError}, Within{0, kTensorCoreError + kHostError}));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  add_conversion_cases(all);
  add_math_cases(all);
  add_thread_cases(all);
  add_matrix_cases(all);
  add_mma_cases(all);
  add_hopper_cases(all);
  add_wgmma_cases(all);
  return all;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

}  // namespace conformance

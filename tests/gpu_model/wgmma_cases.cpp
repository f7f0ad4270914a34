// wgmma: exact on small integers, and bit-equal to the model of Hopper's tensor cores on others.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/host/random.hpp"
#include "tests/gpu_model/case_builder.hpp"
#include "tests/gpu_model/expectations.hpp"

namespace conformance {
namespace {

struct WgmmaCodes {
  std::array<std::array<std::uint8_t, kWgmmaK>, kWgmmaM> a;
  std::array<std::array<std::uint8_t, kWgmmaK>, kWgmmaMaxN> b;
};

template <class Draw>
WgmmaCodes draw_codes(Draw draw) {
  WgmmaCodes codes;
  for (auto& row : codes.a) std::generate(row.begin(), row.end(), draw);
  for (auto& row : codes.b) std::generate(row.begin(), row.end(), draw);
  return codes;
}

/// The exponent that a factor brings into a product: a subnormal has that of the smallest normal.
int exponent_of(const Format& format, double x) {
  return std::max(1 - format.bias(), std::ilogb(x));
}

double truncate(double x, int exponent) {
  const double unit = std::ldexp(1.0, exponent);
  return std::trunc(x / unit) * unit;
}

/// c + sum of a[k] b[k] over one step, as Hopper's tensor cores add (Xie et al., MMA-Sim, arXiv
/// 2511.10909): exact products, all addends truncated 13 bits below the largest exponent, the sum
/// to 13 fractional bits.
double hopper_step(const std::uint8_t* a, const Format& format_a, const std::uint8_t* b,
                   const Format& format_b, double c) {
  constexpr int kFractionBits = 13;
  constexpr int kNone = -1000;
  int largest = c == 0 ? kNone : std::ilogb(c);
  for (int k = 0; k < kWgmmaStep; ++k) {
    const double x = decode(format_a, a[k]);
    const double y = decode(format_b, b[k]);
    if (x != 0 && y != 0) {
      largest = std::max(largest, exponent_of(format_a, x) + exponent_of(format_b, y));
    }
  }
  if (largest == kNone) return 0;
  double sum = truncate(c, largest - kFractionBits);
  for (int k = 0; k < kWgmmaStep; ++k) {
    sum += truncate(decode(format_a, a[k]) * decode(format_b, b[k]), largest - kFractionBits);
  }
  return sum == 0 ? 0 : truncate(sum, std::ilogb(sum) - kFractionBits);
}

/// c + sum of a[k] b[k] over one step, exactly.
double exact_step(const std::uint8_t* a, const Format& format_a, const std::uint8_t* b,
                  const Format& format_b, double c) {
  for (int k = 0; k < kWgmmaStep; ++k) c += decode(format_a, a[k]) * decode(format_b, b[k]);
  return c;
}

/// What the kernels write: A B^T, each twice.
class Products {
 public:
  using Step = decltype(&exact_step);
  Products(const WgmmaCodes& codes, Step step) : codes_(codes), step_(step) {}

  std::vector<float> of_sizes() {
    for (const int n : kWgmmaSizesN) add(n, kWgmmaK, kE4M3, kE4M3);
    return std::move(result_);
  }
  std::vector<float> of_swizzles() {
    for (const int columns : kWgmmaSwizzlesK) add(kWgmmaSwizzlesN, columns, kE4M3, kE4M3);
    return std::move(result_);
  }
  std::vector<float> of_types() {
    for (const Format* a : {&kE4M3, &kE5M2}) {
      for (const Format* b : {&kE4M3, &kE5M2}) add(kWgmmaTypesN, kWgmmaK, *a, *b);
    }
    return std::move(result_);
  }

 private:
  void add(int n, int columns, const Format& format_a, const Format& format_b) {
    std::vector<float> one;
    for (int row = 0; row < kWgmmaM; ++row) {
      for (int col = 0; col < n; ++col) {
        double sum = 0;
        for (int k = 0; k < columns; k += kWgmmaStep) {
          sum = step_(&codes_.a[row][k], format_a, &codes_.b[col][k], format_b, sum);
        }
        one.push_back(static_cast<float>(sum));
      }
    }
    for (int twice = 0; twice < 2; ++twice) result_.insert(result_.end(), one.begin(), one.end());
  }

  const WgmmaCodes& codes_;
  Step step_;
  std::vector<float> result_;
};

}  // namespace

void add_wgmma_cases(std::vector<Case>& all) {
  gpu::host::Random random(31);
  const std::size_t first = all.size();
  // E4M3 0, 1, 1.5, 2, -1, -2; E5M2 0, 0.5, 1, 2, -0.5, -2. Sums over 128 columns are exact.
  constexpr std::array<std::uint8_t, 6> kPlain = {0x00, 0x38, 0x3c, 0x40, 0xb8, 0xc0};
  const std::vector<WgmmaCodes> plain = {
      draw_codes([&] { return kPlain[random.below(kPlain.size())]; })};
  // Every finite code of both formats.
  const std::vector<WgmmaCodes> wide = {draw_codes(
      [&] { return static_cast<std::uint8_t>(random.below(0x7c) | random.below(2) << 7); })};
  const auto exact = [&] { return Products(plain[0], exact_step); };
  const auto modelled = [&] { return Products(wide[0], hopper_step); };
  all.push_back(
      make_case("wgmma_sizes_exact", Primitive::kWgmmaSizes, plain, exact().of_sizes(), 0));
  all.push_back(
      make_case("wgmma_sizes_wide", Primitive::kWgmmaSizes, wide, modelled().of_sizes(), 0));
  all.push_back(make_case("wgmma_swizzles_exact", Primitive::kWgmmaSwizzles, plain,
                          exact().of_swizzles(), 0));
  all.push_back(
      make_case("wgmma_types_exact", Primitive::kWgmmaTypes, plain, exact().of_types(), 0));
  all.push_back(
      make_case("wgmma_types_wide", Primitive::kWgmmaTypes, wide, modelled().of_types(), 0));
  for (std::size_t i = first; i < all.size(); ++i) {
    all[i].min_sm_version = 90;
    all[i].only_sm_90a = true;
  }
}

}  // namespace conformance

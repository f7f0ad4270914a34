// wgmma: exact on integers, and bit-equal to the model of Hopper's tensor cores on others.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/host/executor/random.hpp"
#include "tests/gpu_model/conformance/case_builder.hpp"
#include "tests/gpu_model/conformance/expectations.hpp"

namespace conformance {
namespace {

struct WgmmaCodes {
  std::array<std::array<std::uint8_t, kWgmmaK>, kWgmmaM> a;
  std::array<std::array<std::uint8_t, kWgmmaK>, kWgmmaMaxN> b;
};

/// A and B, an element at a time.
template <class Codes, class Draw>
Codes draw_codes(Draw draw) {
  Codes codes;
  for (auto& row : codes.a) std::generate(row.begin(), row.end(), draw);
  for (auto& row : codes.b) std::generate(row.begin(), row.end(), draw);
  return codes;
}

/// The codes of a format as numbers. Computed once: a test program builds the cases whenever it
/// starts.
struct Codes {
  std::array<double, 256> value;
  /// That a factor brings into a product: a subnormal has that of the smallest normal.
  std::array<int, 256> exponent;

  explicit Codes(const Format& format) {
    for (unsigned code = 0; code < 256; ++code) {
      value[code] = decode(format, code);
      exponent[code] = std::max(1 - format.bias(), std::ilogb(value[code]));
    }
  }
};

/// One step of one element.
struct Step {
  const std::uint8_t* a;
  const Codes& codes_a;
  const std::uint8_t* b;
  const Codes& codes_b;
  double c;

  double product(int k) const { return codes_a.value[a[k]] * codes_b.value[b[k]]; }
};

/// c + the sum of the products, exactly.
double exact_sum(const Step& step) {
  double sum = step.c;
  for (int k = 0; k < kWgmmaStep; ++k) sum += step.product(k);
  return sum;
}

/// The same as Hopper's tensor cores add (Xie et al., MMA-Sim, arXiv 2511.10909): exact products,
/// all addends truncated 13 bits below the largest exponent, the sum to 13 fractional bits.
double hopper_sum(const Step& step) {
  constexpr int kFractionBits = 13;
  constexpr int kNone = -1000;
  int largest = step.c == 0 ? kNone : std::ilogb(step.c);
  for (int k = 0; k < kWgmmaStep; ++k) {
    if (step.product(k) == 0) continue;
    largest =
        std::max(largest, step.codes_a.exponent[step.a[k]] + step.codes_b.exponent[step.b[k]]);
  }
  if (largest == kNone) return 0;
  const double unit = std::ldexp(1.0, largest - kFractionBits);
  double sum = std::trunc(step.c / unit);
  for (int k = 0; k < kWgmmaStep; ++k) sum += std::trunc(step.product(k) / unit);
  if (sum == 0) return 0;
  const double kept = std::ldexp(1.0, std::ilogb(sum) - kFractionBits);
  return std::trunc(sum / kept) * kept * unit;
}

/// What the kernels write: A B^T, each twice.
class Products {
 public:
  using Sum = double (*)(const Step&);
  Products(const WgmmaCodes& codes, Sum sum) : codes_(codes), sum_(sum) {}

  std::vector<float> of_sizes() {
    const auto all = product(kWgmmaMaxN, kWgmmaK, kE4M3, kE4M3);
    for (const int n : kWgmmaSizesN) add(all, kWgmmaMaxN, n);
    return std::move(result_);
  }
  std::vector<float> of_swizzles() {
    for (const int columns : kWgmmaSwizzlesK) {
      add(product(kWgmmaSwizzlesN, columns, kE4M3, kE4M3), kWgmmaSwizzlesN, kWgmmaSwizzlesN);
    }
    return std::move(result_);
  }
  std::vector<float> of_types() {
    for (const Format* a : {&kE4M3, &kE5M2}) {
      for (const Format* b : {&kE4M3, &kE5M2}) {
        add(product(kWgmmaTypesN, kWgmmaK, *a, *b), kWgmmaTypesN, kWgmmaTypesN);
      }
    }
    return std::move(result_);
  }

 private:
  std::vector<float> product(int n, int columns, const Format& format_a,
                             const Format& format_b) const {
    const Codes codes_a(format_a);
    const Codes codes_b(format_b);
    std::vector<float> all;
    for (const auto& row : codes_.a) {
      for (int col = 0; col < n; ++col) {
        double sum = 0;
        for (int k = 0; k < columns; k += kWgmmaStep) {
          sum = sum_({&row[k], codes_a, &codes_.b[col][k], codes_b, sum});
        }
        all.push_back(static_cast<float>(sum));
      }
    }
    return all;
  }

  /// The first n of a product's columns, twice.
  void add(const std::vector<float>& all, int columns, int n) {
    for (int twice = 0; twice < 2; ++twice) {
      for (int row = 0; row < kWgmmaM; ++row) {
        const auto first = all.begin() + row * columns;
        result_.insert(result_.end(), first, first + n);
      }
    }
  }

  const WgmmaCodes& codes_;
  Sum sum_;
  std::vector<float> result_;
};

/// Bytes, as the kernels take them.
std::vector<std::uint32_t> int8_sums(const WgmmaCodes& codes) {
  std::vector<std::uint32_t> result;
  for (const int n : kWgmmaSizesN) {
    for (const std::uint32_t start : {kWgmmaInt8Start, 0U}) {
      for (const auto& row : codes.a) {
        for (int col = 0; col < n; ++col) {
          std::int32_t sum = 0;
          for (int k = 0; k < kWgmmaK; ++k) {
            sum += static_cast<std::int8_t>(row[k]) * static_cast<std::int8_t>(codes.b[col][k]);
          }
          result.push_back(start + static_cast<std::uint32_t>(sum));
        }
      }
    }
  }
  return result;
}

struct Wgmma16BitCodes {
  std::array<std::array<std::uint16_t, kWgmma16BitK>, kWgmmaM> a;
  std::array<std::array<std::uint16_t, kWgmmaMaxN>, kWgmma16BitK> b;
};

/// x cut off towards zero to multiples of `unit`.
double cut_off(double x, double unit) { return std::trunc(x / unit) * unit; }

/// c + 16 products as Hopper's tensor cores add them (MMA-Sim): all addends cut off 25 bits below
/// the largest exponent, their sum to fp32.
double sum_16_bit(const Format& format, const Wgmma16BitCodes& codes, int row, int col, int first,
                  double c) {
  constexpr int kFractionBits = 25;
  constexpr int kFloatBits = 23;
  constexpr int kNone = -1000;
  const auto exponent = [&](double x) { return std::max(1 - format.bias(), std::ilogb(x)); };
  double products[kWgmma16BitStep];
  int largest = c == 0 ? kNone : std::ilogb(c);
  for (int i = 0; i < kWgmma16BitStep; ++i) {
    const double a = decode(format, codes.a[row][first + i]);
    const double b = decode(format, codes.b[first + i][col]);
    products[i] = a * b;
    if (products[i] != 0) largest = std::max(largest, exponent(a) + exponent(b));
  }
  if (largest == kNone) return 0;
  const double unit = std::ldexp(1.0, largest - kFractionBits);
  double sum = cut_off(c, unit);
  for (const double product : products) sum += cut_off(product, unit);
  return sum == 0 ? 0 : cut_off(sum, std::ldexp(1.0, std::ilogb(sum) - kFloatBits));
}

std::vector<float> sums_16_bit(const Format& format, const Wgmma16BitCodes& codes) {
  std::vector<float> all;
  for (int row = 0; row < kWgmmaM; ++row) {
    for (int col = 0; col < kWgmmaMaxN; ++col) {
      double sum = 0;
      for (int k = 0; k < kWgmma16BitK; k += kWgmma16BitStep) {
        sum = sum_16_bit(format, codes, row, col, k, sum);
      }
      all.push_back(static_cast<float>(sum));
    }
  }
  std::vector<float> result;
  for (const int n : kWgmmaSizesN) {
    for (int row = 0; row < kWgmmaM; ++row) {
      const auto first = all.begin() + row * kWgmmaMaxN;
      result.insert(result.end(), first, first + n);
    }
  }
  return result;
}

}  // namespace

void add_wgmma_cases(std::vector<Case>& all) {
  gpu::host::Random random(31);
  const std::size_t first = all.size();
  // E4M3 0, 1, 1.5, 2, -1, -2; E5M2 0, 0.5, 1, 2, -0.5, -2. Sums over 128 columns are exact.
  constexpr std::array<std::uint8_t, 6> kPlain = {0x00, 0x38, 0x3c, 0x40, 0xb8, 0xc0};
  const std::vector<WgmmaCodes> plain = {
      draw_codes<WgmmaCodes>([&] { return kPlain[random.below(kPlain.size())]; })};
  // Every finite code of both formats.
  const std::vector<WgmmaCodes> wide = {draw_codes<WgmmaCodes>(
      [&] { return static_cast<std::uint8_t>(random.below(0x7c) | random.below(2) << 7); })};
  const auto exact = [&] { return Products(plain[0], exact_sum); };
  const auto modelled = [&] { return Products(wide[0], hopper_sum); };
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
  const std::vector<WgmmaCodes> bytes = {
      draw_codes<WgmmaCodes>([&] { return static_cast<std::uint8_t>(random.below(256)); })};
  all.push_back(make_case("wgmma_int8", Primitive::kWgmmaInt8, bytes, int8_sums(bytes[0]), 0));
  struct Type {
    const char* name;
    Primitive primitive;
    Format format;
    int exponents[2];  ///< of what is drawn
  };
  for (const Type& type :
       {Type{"wgmma_half", Primitive::kWgmmaHalf, kHalf, {0, 22}},
        Type{"wgmma_bfloat16", Primitive::kWgmmaBFloat16, kBFloat16, {110, 135}}}) {
    const int bits = type.format.mantissa_bits;
    const auto draw = [&] {
      const auto exponent =
          static_cast<unsigned>(type.exponents[0]) +
          static_cast<unsigned>(random.below(type.exponents[1] - type.exponents[0]));
      return static_cast<std::uint16_t>(random.below(2) << 15 | exponent << bits |
                                        random.below(1U << bits));
    };
    const std::vector<Wgmma16BitCodes> drawn = {draw_codes<Wgmma16BitCodes>(draw)};
    all.push_back(
        make_case(type.name, type.primitive, drawn, sums_16_bit(type.format, drawn[0]), 0));
  }
  for (std::size_t i = first; i < all.size(); ++i) {
    all[i].min_sm_version = 90;
    all[i].only_sm_90a = true;
  }
}

}  // namespace conformance

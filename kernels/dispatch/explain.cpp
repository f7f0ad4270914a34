// What plans say of themselves: explain() and expected_error().
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "attention/few_keys.hpp"
#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/unquantised.hpp"

namespace fp8_sdpa {
namespace {

constexpr int kWgmmaSmVersion = 90;
constexpr std::size_t kOthersNamed = 4;

std::string text_of(const char* format, double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, number);
  return text.data();
}
std::string rounded(double us) { return text_of("%.1f", us); }
std::string percent(double part) { return text_of("%.2g", 1e2 * part) + " %"; }

std::string_view multiplies_with(const Variant& variant, int sm_version) {
  const Family family = variant.family;
  if (variant.int8) return "8-bit integer tensor cores (wgmma), and 16-bit ones for P V";
  if (family == Family::kSm90) return "FP8 tensor cores (wgmma)";
  if (family == Family::kSm89) {
    return sm_version >= kWgmmaSmVersion
               ? "FP8 mma.sync, which this architecture runs at the rate of half"
               : "FP8 tensor cores (mma.sync)";
  }
  if (family == Family::kStageC || family == Family::kSm80 || family == Family::kDecode) {
    return "half tensor cores: codes are widened to half (no FP8 rate)";
  }
  return "what its summary says";
}

/// Root mean square of what rounding to a format moves a number by, as a part of it: steps of
/// 2^-bits between powers of two, of numbers whose logarithms are spread evenly.
double rounding_error(Dtype dtype) {
  constexpr double kOfNoBits = 0.212;  // 1 / sqrt(12) by the mean of m^-2 for m in [1, 2)
  const auto of_bits = [](int bits) { return std::ldexp(kOfNoBits, -bits); };
  switch (dtype) {
    case Dtype::kE5M2: return of_bits(2);
    case Dtype::kE4M3: return of_bits(3);
    case Dtype::kBFloat16: return of_bits(7);
    case Dtype::kHalf: return of_bits(10);
    default: return 0.0;
  }
}

/// Of errors that have nothing to do with each other. (hypot() would want a glibc of 2.35.)
double together(double a, double b) { return std::sqrt(a * a + b * b); }

/// As rounding_error(), of int8 codes of a normal tensor: steps of a 127th of its largest element,
/// some 4.5 standard deviations.
constexpr double kInt8Error = 4.5 / 127 / 3.464;

}  // namespace

double Plan::expected_error() const {
  double weights = rounding_error(variant_->weights);
  // The second term rounds what the first left.
  if (variant_->fp8_p() && problem_.seq_kv <= attention::kMaxKeysOfTwoTerms) weights *= weights;
  return together(weights, rounding_error(problem_.o.dtype));
}

double UnquantisedPlan::expected_error() const {
  const bool int8 = problem_.precision == Precision::kInt8;
  const double codes = int8 ? kInt8Error : rounding_error(Dtype::kE4M3);
  // Q's error and K's move a score by as much of its standard deviation, and a weight by as much.
  const double scores = together(codes, codes);
  return together(attention_.expected_error(), int8 ? scores : together(scores, codes));
}

std::string UnquantisedPlan::explain() const {
  const bool blocks = attention_.problem().descales.granularity == Granularity::kBlock;
  const std::string of_blocks = "block of " + std::to_string(kQueriesOfBlock) + " queries and of " +
                                std::to_string(kKeysOfBlock) + " keys";
  std::string text = attention_.explain() + "\nbefore it: Q";
  text += problem_.precision == Precision::kInt8
              ? " and K are quantised to int8, a scale per (batch, head); V is as it is"
              : ", K and V are quantised to E4M3, a scale per " +
                    (blocks ? of_blocks : std::string("(batch, head)"));
  return text + "\nerror to expect with that: " + percent(expected_error()) +
         " of O, for normal inputs whose scores have a standard deviation of 1";
}

std::string Plan::explain() const {
  std::string text = std::string(variant_->name) + ": " + std::string(variant_->summary) + "\n";
  text += "device: " + device_.name + ", sm_" + std::to_string(device_.sm_version);
  text += device_.backend == Backend::kHost
              ? " played on the CPU by the host executor: right, and slow\n"
              : ", " + std::to_string(device_.sm_count) + " multiprocessors\n";
  text += "multiplies on: " + std::string(multiplies_with(*variant_, device_.sm_version));
  text += "\nerror to expect: " + percent(expected_error()) +
          " of O, beside exact attention of these codes";
  text += "\nworkspace: " + std::to_string(workspace_bytes()) + " bytes\n";

  std::string others;
  std::size_t named = 0;
  // Costs are those of an sm_90, whose choice the host executor's is.
  std::vector<detail::Prediction> predicted;
  if (device_.sm_version == 90) predicted = detail::predictions(problem_, device_, options_);
  for (const detail::Prediction& p : predicted) {
    if (p.variant == variant_) {
      text += "predicted for an sm_90: " + rounded(p.us) + " us\n";
    } else if (named++ < kOthersNamed) {
      others += (others.empty() ? "" : ", ") + std::string(p.variant->name) + " " + rounded(p.us);
    }
  }
  if (!others.empty()) text += "others predicted, in us: " + others + "\n";

  // One reason a family: its variants share their limits.
  std::map<Family, std::string> reasons;
  for (const Variant& variant : variants()) {
    const Status status = variant.supports(problem_, device_);
    std::string& reason = reasons.emplace(variant.family, status.message()).first->second;
    if (status.ok()) reason.clear();
  }
  for (const auto& [family, reason] : reasons) {
    if (!reason.empty()) text += "declined: " + reason + "\n";
  }
  text.pop_back();
  return text;
}

}  // namespace fp8_sdpa

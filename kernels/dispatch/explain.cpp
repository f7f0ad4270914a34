// Plan::explain().
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "dispatch/choose.hpp"
#include "dispatch/variant.hpp"
#include "fp8_sdpa/plan.hpp"

namespace fp8_sdpa {
namespace {

constexpr int kWgmmaSmVersion = 90;
constexpr std::size_t kOthersNamed = 4;

std::string rounded(double us) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", us);
  return text.data();
}

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

}  // namespace

std::string Plan::explain() const {
  std::string text = std::string(variant_->name) + ": " + std::string(variant_->summary) + "\n";
  text += "device: " + device_.name + ", sm_" + std::to_string(device_.sm_version);
  text += device_.backend == Backend::kHost
              ? " played on the CPU by the host executor: right, and slow\n"
              : ", " + std::to_string(device_.sm_count) + " multiprocessors\n";
  text += "multiplies on: " + std::string(multiplies_with(*variant_, device_.sm_version));
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

// The table of variants: every kernel of every family, bound to its functions on both backends.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "check_problem.hpp"
#include "fp8_sdpa/variant.hpp"
#include "stage_c/kernel.cuh"
#include "stage_c/stage_c.hpp"
#include "variant_impl.hpp"

namespace fp8_sdpa {
namespace {

template <class Tag>
constexpr Resources stage_c_resources() {
  return {stage_c::Kernel<Tag>::kThreads, sizeof(typename stage_c::Kernel<Tag>::Shared),
          stage_c::kTileM, stage_c::kTileN};
}

template <class Tag>
constexpr detail::VariantImpl stage_c_impl() {
  detail::VariantImpl impl{stage_c::supports, nullptr, nullptr};
#if FP8_SDPA_HAS_DEVICE
  impl.launch_device = stage_c::launch<Tag, Backend::kDevice>;
#endif
#if FP8_SDPA_HAS_HOST
  impl.launch_host = stage_c::launch<Tag, Backend::kHost>;
#endif
  return impl;
}

#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...) \
  constexpr detail::VariantImpl k_##NAME = stage_c_impl<stage_c::tag::NAME>();
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_VARIANT

constexpr Variant kVariants[] = {
#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...) \
  {#NAME,                                            \
   SUMMARY,                                          \
   Family::kStageC,                                  \
   stage_c::tag::NAME::kToggles,                     \
   stage_c_resources<stage_c::tag::NAME>(),          \
   &k_##NAME},
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_VARIANT
};

// Levenshtein distance, for "did you mean".
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Variant> variants() {
  return kVariants;
}

Result<const Variant*> find_variant(std::string_view name) {
  const auto closer = [name](const Variant* a, const Variant* b) {
    return edit_distance(name, a->name) < edit_distance(name, b->name);
  };
  std::vector<const Variant*> all;
  for (const Variant& variant : variants()) {
    if (variant.name == name) return &variant;
    all.push_back(&variant);
  }
  std::stable_sort(all.begin(), all.end(), closer);
  std::string message = "unknown variant '" + std::string(name) + "'; nearest:";
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < std::min(kShown, all.size()); ++i) {
    message += ' ';
    message += all[i]->name;
  }
  return invalid_argument(message);
}

Status Variant::supports(const Problem& problem, const Device& device) const {
  if (Status s = detail::check_problem(problem); !s.ok()) return s;
  const bool built = device.backend == Backend::kDevice ? impl->launch_device != nullptr
                                                        : impl->launch_host != nullptr;
  if (!built) {
    return unsupported(
        std::string("this build has no ") + name_of(device.backend) + " code: configure it " +
        (device.backend == Backend::kDevice ? "where nvcc is" : "with SDPA_HOST_EXECUTOR=ON"));
  }
  if (device.shared_memory_per_block < resources.shared_bytes) {
    return unsupported(std::string(name) + " needs " + std::to_string(resources.shared_bytes) +
                       " bytes of shared memory per block; " + device.name + " has " +
                       std::to_string(device.shared_memory_per_block));
  }
  return impl->supports(problem, device);
}

}  // namespace fp8_sdpa

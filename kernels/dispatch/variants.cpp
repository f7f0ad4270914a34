// The table of variants: every kernel of every family, bound to its functions on both backends.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "dispatch/check_problem.hpp"
#include "dispatch/variant_impl.hpp"
#include "fp8_sdpa/resources.hpp"
#include "fp8_sdpa/variant.hpp"
#include "sm80/kernel.cuh"
#include "sm80/sm80.hpp"
#include "sm89/kernel.cuh"
#include "sm89/sm89.hpp"
#include "sm90/kernel.cuh"
#include "sm90/sm90.hpp"
#include "stage_c/kernel.cuh"
#include "stage_c/stage_c.hpp"

namespace fp8_sdpa {
namespace {

/// What one block of kernel K asks for.
template <class K>
constexpr Resources resources_of(int tile_m, int tile_n) {
  return {K::kThreads, sizeof(typename K::Shared), tile_m, tile_n};
}

template <class Tag>
constexpr detail::VariantImpl stage_c_impl() {
  detail::VariantImpl impl{stage_c::supports, {}, {}};
#if FP8_SDPA_HAS_DEVICE
  impl.device.launch = stage_c::launch<Tag, Backend::kDevice>;
#endif
#if FP8_SDPA_HAS_HOST
  impl.host.launch = stage_c::launch<Tag, Backend::kHost>;
#endif
  return impl;
}

template <class Tag>
constexpr detail::VariantImpl sm90_impl() {
  detail::VariantImpl impl{sm90::supports<Tag>, {}, {}};
  impl.predicted_us = sm90::predicted_us<Tag>;
  impl.needs_workspace = sm90::prepares_values<Tag>();
#if FP8_SDPA_HAS_SM90A
  impl.device.prepare = sm90::prepare<Tag, Backend::kDevice>;
  impl.device.launch_prepared = sm90::launch<Tag, Backend::kDevice>;
#endif
#if FP8_SDPA_HAS_HOST
  impl.host.prepare = sm90::prepare<Tag, Backend::kHost>;
  impl.host.launch_prepared = sm90::launch<Tag, Backend::kHost>;
#endif
  return impl;
}

/// Calls `call` with each head dim of the variant and what its blocks ask for.
template <class Tag, class Call>
constexpr void for_each_sm90_block(const Call& call) {
  const auto consider = [&call]<int kHeadDim>() {
    if constexpr (Tag::serves(kHeadDim)) {
      using K = sm90::Kernel<Tag, kHeadDim>;
      Resources one = resources_of<K>(K::T::kTileM, K::T::kTileN);
      one.cluster_blocks = K::kClusterBlocks;
      call(kHeadDim, one);
    }
  };
  consider.template operator()<64>();
  consider.template operator()<128>();
  consider.template operator()<256>();
}

/// What a block of the head dim asks for that asks for most shared memory.
template <class Tag>
constexpr Resources sm90_resources() {
  Resources most;
  for_each_sm90_block<Tag>([&most](int /*head_dim*/, const Resources& one) {
    if (one.shared_bytes > most.shared_bytes) most = one;
  });
  return most;
}

#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) \
  constexpr detail::VariantImpl k_##NAME = sm90_impl<sm90::tag::NAME>();
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT

/// A family of one variant: its functions are named by the family's namespace.
#if FP8_SDPA_HAS_DEVICE
#define FP8_SDPA_LAUNCH_DEVICE(FAMILY) FAMILY::launch<Backend::kDevice>
#else
#define FP8_SDPA_LAUNCH_DEVICE(FAMILY) nullptr
#endif
#if FP8_SDPA_HAS_HOST
#define FP8_SDPA_LAUNCH_HOST(FAMILY) FAMILY::launch<Backend::kHost>
#else
#define FP8_SDPA_LAUNCH_HOST(FAMILY) nullptr
#endif
constexpr detail::VariantImpl k_sm80_mma{sm80::supports,
                                         {FP8_SDPA_LAUNCH_DEVICE(sm80)},
                                         {FP8_SDPA_LAUNCH_HOST(sm80)},
                                         sm80::predicted_us};
constexpr detail::VariantImpl k_sm89_mma{
    sm89::supports, {FP8_SDPA_LAUNCH_DEVICE(sm89)}, {FP8_SDPA_LAUNCH_HOST(sm89)}};

#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...) \
  constexpr detail::VariantImpl k_##NAME = stage_c_impl<stage_c::tag::NAME>();
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_VARIANT

namespace groups = attention::key_groups;

constexpr Variant kVariants[] = {
#define FP8_SDPA_STAGE_C_VARIANT(NAME, SUMMARY, ...)                                        \
  {.name = #NAME,                                                                           \
   .summary = SUMMARY,                                                                      \
   .family = Family::kStageC,                                                               \
   .toggles = stage_c::tag::NAME::kToggles,                                                 \
   .resources =                                                                             \
       resources_of<stage_c::Kernel<stage_c::tag::NAME>>(stage_c::kTileM, stage_c::kTileN), \
   .impl = &k_##NAME},
#include "stage_c/variants.def"
#undef FP8_SDPA_STAGE_C_VARIANT
    {.name = "sm80_mma",
     .summary = "half mma.sync, S, P and O in registers, keys split over warps",
     .family = Family::kSm80,
     .toggles = {},
     .resources = resources_of<sm80::Kernel<sm80::tag::sm80_mma, Dtype::kE4M3>>(groups::kTileM,
                                                                                groups::kTileN),
     .impl = &k_sm80_mma},
    {.name = "sm89_mma",
     .summary = "FP8 mma.sync, S, P and O in registers, keys split over warps",
     .family = Family::kSm89,
     .toggles = {},
     .resources = resources_of<sm89::Kernel<sm89::tag::sm89_mma, Dtype::kE4M3, 1>>(groups::kTileM,
                                                                                   groups::kTileN),
     .impl = &k_sm89_mma,
     .fp8_p = true},
#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY)       \
  {.name = #NAME,                                  \
   .summary = SUMMARY,                             \
   .family = Family::kSm90,                        \
   .toggles = {},                                  \
   .resources = sm90_resources<sm90::tag::NAME>(), \
   .impl = &k_##NAME,                              \
   .fp8_p = true},
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT
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
  const bool built = device.backend == Backend::kDevice ? impl->device.built() : impl->host.built();
  if (!built && device.backend == Backend::kDevice && FP8_SDPA_HAS_DEVICE) {
    return unsupported(std::string(name) +
                       " has no device code in this build: configure it with 90a among "
                       "SDPA_CUDA_ARCHS");
  }
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

Resources resources_at(const Variant& variant, int head_dim) {
  Resources found = variant.resources;
  const auto take = [&](int block_head_dim, const Resources& one) {
    if (block_head_dim == head_dim) found = one;
  };
#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) \
  if (variant.name == #NAME) for_each_sm90_block<sm90::tag::NAME>(take);
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT
  return found;
}

}  // namespace fp8_sdpa

// The table of variants: every kernel of every family, bound to its functions on both backends.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "attention/sequences.hpp"
#include "decode/decode.hpp"
#include "decode/kernel.cuh"
#include "dispatch/check_problem.hpp"
#include "dispatch/resources.hpp"
#include "dispatch/variant.hpp"
#include "dispatch/variant_impl.hpp"
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

/// What the table of tile shapes is bound to on one backend: a row each.
struct Sm90Kernel {
  detail::Prepare prepare;
  detail::LaunchPrepared launch;
};
template <Backend kBackend>
constexpr Sm90Kernel kSm90Kernels[] = {
#define FP8_SDPA_SM90_TILE_SHAPE(VARIANT, HEAD_DIM, SUMS, ...)         \
  {sm90::prepare<sm90::tag::VARIANT##_d##HEAD_DIM##_##SUMS, kBackend>, \
   sm90::launch<sm90::tag::VARIANT##_d##HEAD_DIM##_##SUMS, kBackend>},
#include "sm90/tile_shapes.def"
#undef FP8_SDPA_SM90_TILE_SHAPE
};

/// The functions of an sm90 variant: those of the kernel that its problem asks for.
template <const char* kName>
struct Sm90Variant {
  /// The kernel of the problem, or, where there is none, one that says why.
  static int kernel_of(const Problem& p) {
    for (const bool exact : {p.lse != nullptr && p.lse_sum == LseSum::kExact, false}) {
      const int found = sm90::find_tile_shape(kName, p.head_dim, exact);
      if (found >= 0) return found;
    }
    int first = 0;
    while (sm90::kTileShapes[first].variant != kName) ++first;
    return first;
  }
  static Status supports(const Problem& p, const Device& device) {
    return sm90::supports(sm90::kTileShapes[kernel_of(p)], p, device);
  }
  static double predicted_us(const Problem& p, int sm_count, const PlanOptions& options) {
    return sm90::predicted_us(sm90::kTileShapes[kernel_of(p)], p, sm_count, options);
  }
  template <Backend kBackend>
  static Status prepare(const Problem& p, const Device& device, const PlanOptions& options,
                        detail::PlanState& state) {
    state.kernel = kernel_of(p);
    return kSm90Kernels<kBackend>[state.kernel].prepare(p, device, options, state);
  }
  template <Backend kBackend>
  static Status launch(const detail::PlanState& state, void* workspace, const gpu::Queue& queue) {
    return kSm90Kernels<kBackend>[state.kernel].launch(state, workspace, queue);
  }
  static bool has_kernel_of_exact_sums(int head_dim) {
    const int exact = sm90::find_tile_shape(kName, head_dim, true);
    return exact >= 0 && exact != sm90::find_tile_shape(kName, head_dim, false);
  }

  static constexpr detail::VariantImpl impl() {
    detail::VariantImpl impl{supports, {}, {}};
    impl.predicted_us = predicted_us;
    impl.needs_workspace = sm90::needs_workspace(kName);
    impl.serves_caches = sm90::serves_caches(kName);
    impl.serves_blocks = sm90::config_of(kName).block_scales;
    impl.has_kernel_of_exact_sums = has_kernel_of_exact_sums;
#if FP8_SDPA_HAS_SM90A
    impl.device.prepare = prepare<Backend::kDevice>;
    impl.device.launch_prepared = launch<Backend::kDevice>;
#endif
#if FP8_SDPA_HAS_HOST
    impl.host.prepare = prepare<Backend::kHost>;
    impl.host.launch_prepared = launch<Backend::kHost>;
#endif
    return impl;
  }
};

/// What a block of each row of the table of tile shapes asks for.
constexpr Resources kSm90Resources[] = {
#define FP8_SDPA_SM90_TILE_SHAPE(VARIANT, HEAD_DIM, SUMS, ...)           \
  resources_of<sm90::Kernel<sm90::tag::VARIANT##_d##HEAD_DIM##_##SUMS>>( \
      sm90::tag::VARIANT##_d##HEAD_DIM##_##SUMS::kConfig.tile_m(),       \
      sm90::tag::VARIANT##_d##HEAD_DIM##_##SUMS::kConfig.tile_n),
#include "sm90/tile_shapes.def"
#undef FP8_SDPA_SM90_TILE_SHAPE
};

/// What a block of the variant asks for at a head dim, or, for 0, at the one that asks for most
/// shared memory. No threads: it serves no such head dim.
constexpr Resources sm90_resources(std::string_view variant, int head_dim = 0) {
  Resources most;
  for (std::size_t i = 0; i < std::size(sm90::kTileShapes); ++i) {
    const sm90::TileShape& shape = sm90::kTileShapes[i];
    if (shape.variant != variant || (head_dim != 0 && shape.head_dim != head_dim)) continue;
    if (kSm90Resources[i].shared_bytes > most.shared_bytes) most = kSm90Resources[i];
  }
  return most;
}

/// What its kernels round P to: the same of all.
constexpr Dtype sm90_weights(std::string_view variant) {
  for (const sm90::TileShape& shape : sm90::kTileShapes) {
    if (shape.variant != variant || !shape.config.int8()) continue;
    return shape.config.formats == sm90::Formats::kInt8Half ? Dtype::kHalf : Dtype::kBFloat16;
  }
  return Dtype::kE4M3;
}

#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) \
  constexpr char kName_##NAME[] = #NAME;     \
  constexpr detail::VariantImpl k_##NAME = Sm90Variant<kName_##NAME>::impl();
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

constexpr detail::VariantImpl decode_impl() {
  detail::VariantImpl impl{decode::supports, {}, {}};
  impl.predicted_us = decode::predicted_us;
  impl.serves_caches = true;
#if FP8_SDPA_HAS_DEVICE
  impl.device.prepare = decode::prepare;
  impl.device.launch_prepared = decode::launch<Backend::kDevice>;
#endif
#if FP8_SDPA_HAS_HOST
  impl.host.prepare = decode::prepare;
  impl.host.launch_prepared = decode::launch<Backend::kHost>;
#endif
  return impl;
}
constexpr detail::VariantImpl k_decode_split_kv = decode_impl();
/// The kernel that asks for most.
using LargestDecode =
    decode::Kernel<decode::tag::decode_split_kv, 256, decode::kMaxRowGroups, 1, Dtype::kE4M3>;

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
     .weights = Dtype::kE4M3},
#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) \
  {.name = #NAME,                            \
   .summary = SUMMARY,                       \
   .family = Family::kSm90,                  \
   .toggles = {},                            \
   .resources = sm90_resources(#NAME),       \
   .impl = &k_##NAME,                        \
   .weights = sm90_weights(#NAME),           \
   .int8 = !is_fp8(sm90_weights(#NAME))},
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT
    {.name = "decode_split_kv",
     .summary = "half mma.sync, few query rows, keys split over blocks, caches in pages",
     .family = Family::kDecode,
     .toggles = {},
     .resources = resources_of<LargestDecode>(decode::kMaxRows, LargestDecode::S::kTileN),
     .impl = &k_decode_split_kv},
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

std::span<const Variant> variants() { return kVariants; }

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
  if (!impl->serves_caches && attention::is_ragged_or_paged(problem)) {
    return unsupported(std::string(name) + " serves whole tensors, not " +
                       (problem.pages.block_table != nullptr ? "pages" : "ragged lengths"));
  }
  if (!impl->serves_blocks && problem.descales.granularity == Granularity::kBlock) {
    return unsupported(std::string(name) + " serves descales of heads, not of blocks");
  }
  return impl->supports(problem, device);
}

bool Variant::has_kernel_of_exact_sums(int head_dim) const {
  return impl->has_kernel_of_exact_sums != nullptr && impl->has_kernel_of_exact_sums(head_dim);
}

Resources resources_at(const Variant& variant, int head_dim) {
  const Resources found = sm90_resources(variant.name, head_dim);
  return found.threads > 0 ? found : variant.resources;
}

}  // namespace fp8_sdpa

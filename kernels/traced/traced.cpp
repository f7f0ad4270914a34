#include "traced/traced.hpp"

#include "traced/kernels.hpp"

namespace fp8_sdpa::traced {
namespace {

template <class Tag>
constexpr TracedVariant entry(std::string_view name) {
  TracedVariant variant{
      name, Tag::Kernel::kThreads / gpu::kWarpSize, Tag::kTileM, Tag::kTileN, nullptr, nullptr};
#if FP8_SDPA_HAS_DEVICE
  variant.launch_device = launch<Tag, Backend::kDevice>;
#endif
#if FP8_SDPA_HAS_HOST
  variant.launch_host = launch<Tag, Backend::kHost>;
#endif
  return variant;
}

constexpr TracedVariant kVariants[] = {
#define FP8_SDPA_TRACED_STAGE_C(NAME) entry<tag::NAME>(#NAME),
#define FP8_SDPA_TRACED(FAMILY, NAME) entry<tag::NAME>(#NAME),
#include "traced/variants.def"
#undef FP8_SDPA_TRACED
#undef FP8_SDPA_TRACED_STAGE_C
};

}  // namespace

unsigned TracedVariant::blocks(const Problem& problem) const {
  return attention::forward_blocks(problem, tile_m);
}

int TracedVariant::marks_per_warp(const Problem& problem) const {
  constexpr int kOutsideTheLoop = 8;
  constexpr int kPerTile = 9;
  return kOutsideTheLoop + kPerTile * static_cast<int>((problem.seq_kv + tile_n - 1) / tile_n);
}

std::span<const TracedVariant> traced_variants() { return kVariants; }

const TracedVariant* find_traced_variant(std::string_view name) {
  for (const TracedVariant& variant : kVariants) {
    if (variant.name == name) return &variant;
  }
  return nullptr;
}

}  // namespace fp8_sdpa::traced

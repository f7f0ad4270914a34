// The smaller sm90 variants (head_dim 64 alone) for the host executor, as one translation unit:
// what a trial of an edited sm90 kernel compiles. Between them they hold every barrier of the
// family.
#include "sm90/launch.cuh"

namespace fp8_sdpa::sm90 {
namespace {

template <class Tag>
constexpr auto launch_of() {
  using Launch = Status (*)(const detail::PlanState&, const gpu::Queue&);
  if constexpr (Tag::serves(128) || Tag::serves(256)) {
    return Launch{nullptr};
  } else {
    return Launch{launch<Tag, Backend::kHost>};
  }
}

}  // namespace

/// Makes the compiler keep the functions; nobody calls them through this table.
extern Status (*const kSm90UnitLaunches[])(const detail::PlanState&, const gpu::Queue&);
Status (*const kSm90UnitLaunches[])(const detail::PlanState&, const gpu::Queue&) = {
#define FP8_SDPA_SM90_VARIANT(NAME, SUMMARY) launch_of<tag::NAME>(),
#include "sm90/variants.def"
#undef FP8_SDPA_SM90_VARIANT
};

}  // namespace fp8_sdpa::sm90

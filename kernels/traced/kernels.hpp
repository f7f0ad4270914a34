// Which kernel a logged variant is.
#pragma once

#include "sm80/kernel.cuh"
#include "stage_c/kernel.cuh"

namespace fp8_sdpa::traced {

template <class Tag>
struct StageC {
  using Kernel = stage_c::Kernel<attention::Traced<Tag>>;
  static constexpr int kTileM = stage_c::kTileM;
  static constexpr int kTileN = stage_c::kTileN;
};

/// Of E4M3, the format that timelines are drawn of.
template <class Tag>
struct Sm80 {
  using Kernel = sm80::Kernel<attention::Traced<Tag>, Dtype::kE4M3>;
  static constexpr int kTileM = attention::key_groups::kTileM;
  static constexpr int kTileN = attention::key_groups::kTileN;
};

namespace tag {
#define FP8_SDPA_TRACED_STAGE_C(NAME) \
  struct NAME : StageC<fp8_sdpa::stage_c::tag::NAME> {};
#define FP8_SDPA_TRACED(FAMILY, NAME) \
  struct NAME : Sm80<fp8_sdpa::FAMILY::tag::NAME> {};
#include "traced/variants.def"
#undef FP8_SDPA_TRACED
#undef FP8_SDPA_TRACED_STAGE_C
}  // namespace tag

}  // namespace fp8_sdpa::traced

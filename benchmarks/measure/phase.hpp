// Names the phases of a run as NVTX ranges, for Nsight Systems' timeline and Nsight Compute's
// filter (`--nvtx-include "fp8_sdpa@timing/"`). Without a tool attached a range is a few
// instructions; in a build without the CUDA toolkit's headers it is nothing.
#pragma once

#if __has_include(<nvtx3/nvtx3.hpp>)
#include <nvtx3/nvtx3.hpp>
#define FP8_SDPA_HAS_NVTX 1
#else
#define FP8_SDPA_HAS_NVTX 0
#endif

namespace fp8_sdpa::bench {

inline constexpr const char* kPhaseDomain = "fp8_sdpa";
inline constexpr const char* kPhaseLoadConfig = "load config";
inline constexpr const char* kPhaseMakeCase = "make case";
inline constexpr const char* kPhaseGates = "gates";
inline constexpr const char* kPhaseWarmUp = "warm-up";
inline constexpr const char* kPhaseTiming = "timing";
inline constexpr const char* kPhaseWriteResults = "write results";

/// A phase, from here to the end of the scope.
class Phase {
 public:
#if FP8_SDPA_HAS_NVTX
  explicit Phase(const char* name) : range_(name) {}

 private:
  struct Domain {
    static constexpr const char* name = kPhaseDomain;
  };
  nvtx3::scoped_range_in<Domain> range_;
#else
  explicit Phase(const char*) {}
  ~Phase() {}  // so that an unused variable is no warning
#endif
};

}  // namespace fp8_sdpa::bench

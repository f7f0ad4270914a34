// What stands behind a Variant: the functions that the table binds to its name.
#pragma once

#include "dispatch/plan_state.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::detail {

using Launch = Status (*)(const Problem&, const gpu::Queue&);
using Prepare = Status (*)(const Problem&, const Device&, const PlanOptions&, PlanState&);
/// `workspace` has PlanState::workspace_bytes.
using LaunchPrepared = Status (*)(const PlanState&, void* workspace, const gpu::Queue&);

/// Of one backend: either `launch`, or the pair that does once per plan what need not be done per
/// launch. All null where this build lacks the backend.
struct Functions {
  Launch launch = nullptr;
  Prepare prepare = nullptr;
  LaunchPrepared launch_prepared = nullptr;

  constexpr bool built() const { return launch != nullptr || launch_prepared != nullptr; }
};

struct VariantImpl {
  Status (*supports)(const Problem&,
                     const Device&);  ///< the family's own limits, after check_problem()
  Functions device;                   ///< needs device code
  Functions host;                     ///< needs the host executor
  /// Microseconds of a launch inside a CUDA graph on an sm_90 with `sm_count` multiprocessors, for
  /// a problem that the variant serves, planned with these options; null where nobody has measured.
  double (*predicted_us)(const Problem&, int sm_count, const PlanOptions&) = nullptr;
  bool serves_blocks = false;    ///< descales of blocks (Granularity::kBlock)
  bool serves_caches = false;    ///< Ragged and Pages
  bool needs_workspace = false;  ///< whatever the problem and the options
  /// Variant::has_kernel_of_exact_sums(); null: false.
  bool (*has_kernel_of_exact_sums)(int head_dim) = nullptr;
};

}  // namespace fp8_sdpa::detail

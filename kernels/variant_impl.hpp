// What stands behind a Variant: the functions that the table binds to its name.
#pragma once

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "gpu/queue.hpp"

namespace fp8_sdpa::detail {

using Launch = Status (*)(const Problem&, const gpu::Queue&);

struct VariantImpl {
  Status (*supports)(const Problem&,
                     const Device&);  ///< the family's own limits, after check_problem()
  Launch launch_device;               ///< null where this build has no device code
  Launch launch_host;                 ///< null where this build has no host executor
};

}  // namespace fp8_sdpa::detail

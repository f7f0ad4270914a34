// What Hopper (sm_90a) adds to the CUDA programming model. A kernel that includes this says
// `static constexpr bool kOnlySm90a = true` (gpu/launch.hpp).
#pragma once

#include "gpu/global_store.hpp"   // IWYU pragma: export
#include "gpu/gpu.hpp"            // IWYU pragma: export
#include "gpu/shared_matrix.hpp"  // IWYU pragma: export
#include "gpu/tensor_map.hpp"     // IWYU pragma: export
#include "gpu/tma.hpp"            // IWYU pragma: export
#include "gpu/warpgroup.hpp"      // IWYU pragma: export
#include "gpu/wgmma.hpp"          // IWYU pragma: export

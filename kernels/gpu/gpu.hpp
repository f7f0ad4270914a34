// The CUDA programming model: the one header that a kernel includes. Each function is one
// instruction; each has a body for the device and one for the host executor (see README.md).
#pragma once

#include "gpu/atomic.hpp"            // IWYU pragma: export
#include "gpu/backend.hpp"           // IWYU pragma: export
#include "gpu/barrier.hpp"           // IWYU pragma: export
#include "gpu/clock.hpp"             // IWYU pragma: export
#include "gpu/convert.hpp"           // IWYU pragma: export
#include "gpu/cp_async.hpp"          // IWYU pragma: export
#include "gpu/dependent_launch.hpp"  // IWYU pragma: export
#include "gpu/index.hpp"             // IWYU pragma: export
#include "gpu/launch.hpp"            // IWYU pragma: export
#include "gpu/math.hpp"              // IWYU pragma: export
#include "gpu/mbarrier.hpp"          // IWYU pragma: export
#include "gpu/mma.hpp"               // IWYU pragma: export
#include "gpu/permute.hpp"           // IWYU pragma: export
#include "gpu/print.hpp"             // IWYU pragma: export
#include "gpu/shuffle.hpp"           // IWYU pragma: export
#include "gpu/wmma.hpp"              // IWYU pragma: export

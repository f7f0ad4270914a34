// Warp matrix multiply: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions: wmma", under
// the names of nvcuda::wmma (CUDA C++ Programming Guide, "Warp Matrix Functions").
//
// Served: m16n16k16, half x half, fp32 accumulator; in memory all of them row-major, or B
// column-major. A fragment's element-to-lane map is opaque on both backends. Loads and stores are
// made by each lane for itself and order nothing: put sync_warp or a barrier between a store and
// another lane's load.
#pragma once

#include "gpu/backend.hpp"
#if GPU_ON_DEVICE
#include <mma.h>

namespace gpu {
inline namespace GPU_BACKEND {
namespace wmma = nvcuda::wmma;
}  // namespace GPU_BACKEND
}  // namespace gpu
#else
#include "gpu/host/tensor_core/wmma.hpp"

namespace gpu {
inline namespace GPU_BACKEND {
namespace wmma = host::wmma;
}  // namespace GPU_BACKEND
}  // namespace gpu
#endif

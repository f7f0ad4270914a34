// Ordinary stores to global memory that the async proxy reads in the same launch: the host executor
// watches these.
#pragma once

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/memory/global_stores.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// st.global.v4.b32 (PTX ISA, "st"): stores 16 bytes to a multiple of 16, through the generic
/// proxy. Before TMA may read them in the same launch, in whatever block, this thread calls
/// fence_proxy_async_global and then tells, by a barrier or an atomic of atomic.hpp; a thread of
/// another block that has been told so calls it too, and then loads. (On which side the PTX ISA
/// wants it can be read both ways.)
GPU_FN void store_global_16(void* global, const uint4& value, [[maybe_unused]] Loc loc = GPU_LOC) {
#if !GPU_ON_DEVICE
  host::store_global_16(global, loc);
#endif
  *static_cast<uint4*>(global) = value;
}

}  // namespace GPU_BACKEND
}  // namespace gpu

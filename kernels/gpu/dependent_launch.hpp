// Kernels that start before the one before them on the stream has ended: PTX ISA, "griddepcontrol";
// CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization". Without effect
// before sm_90.
//
// What a kernel prepares for itself, barriers in shared memory and the like, then takes place while
// earlier kernels are at their last blocks. A kernel with `static constexpr bool kUsesPdl =
// true` (launch.hpp) is launched so, and must call pdl_wait() in each block, before
// it touches any memory that an earlier kernel reads or writes.
#pragma once

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

/// griddepcontrol.wait: until the kernels before this one have ended; what they wrote is visible to
/// this thread then.
GPU_FN void pdl_wait() {
#if GPU_ON_DEVICE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#else
  host::pdl_wait();
#endif
}

/// griddepcontrol.launch_dependents: once a thread of every block has called it, or the block has
/// exited, blocks of the next kernel may start, if that one starts early. It promises nothing about
/// memory: whoever starts early waits, and ends only after what it has waited for. Where two blocks
/// fit on a multiprocessor, call it after pdl_wait(): else blocks of the next
/// kernel crowd some multiprocessors and leave others empty.
GPU_FN void pdl_launch_dependents() {
#if GPU_ON_DEVICE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu

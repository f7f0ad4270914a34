// Formatted output from a kernel, for debugging builds.
#pragma once

#include <cstdio>

#include "gpu/backend.hpp"

namespace gpu {
inline namespace GPU_BACKEND {

/// printf: the device buffers its output until the host synchronises, the host executor prints at
/// once.
template <class... Args>
GPU_FN void print(const char* format, Args... args) {
#if !GPU_ON_DEVICE
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#endif
  printf(format, args...);
#if !GPU_ON_DEVICE
#pragma GCC diagnostic pop
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu

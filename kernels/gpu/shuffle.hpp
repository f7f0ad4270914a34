// Values between the lanes of a warp: PTX ISA, "shfl.sync" and "vote.sync". They wait for the whole
// warp but order no memory access: that is what sync_warp is for.
#pragma once

#include "gpu/backend.hpp"
#if !GPU_ON_DEVICE
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gpu/host/executor/runtime.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

#if !GPU_ON_DEVICE
namespace detail {

template <class T>
inline T shuffle(T value, int source_lane, const char* name, Loc loc) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = host::shuffle(bits, source_lane % kWarpSize, name, loc);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace detail
#endif

/// shfl.sync.idx.b32 over the full warp: the value of lane `source_lane` (modulo 32, not negative).
template <class T>
GPU_FN T shfl(T value, int source_lane, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  return __shfl_sync(0xffffffffU, value, source_lane);
#else
  return detail::shuffle(value, source_lane, "shfl", loc);
#endif
}

/// shfl.sync.bfly.b32 over the full warp: the value of lane `lane ^ lane_mask`, lane_mask 0 to 31.
template <class T>
GPU_FN T shfl_xor(T value, int lane_mask, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  return __shfl_xor_sync(0xffffffffU, value, lane_mask);
#else
  return detail::shuffle(value, host::current_lane->lane ^ lane_mask, "shfl_xor", loc);
#endif
}

/// vote.sync.any over the full warp: whether any lane says so.
GPU_FN bool any_lane(bool says, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  return __any_sync(0xffffffffU, says ? 1 : 0) != 0;
#else
  return host::any_lane(says, loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu

// What a family prepares once per plan: opaque bytes that live in the Plan.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fp8_sdpa/plan.hpp"

namespace fp8_sdpa::detail {

/// Where tensors are that are planned before their memory is known, which no memory is: the plan
/// says which variant it is and how large a workspace it needs, and cannot be launched.
inline constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 62;
inline bool has_memory(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) < kNowhere;
}

/// Stores a value of the family's own type.
template <class T>
void put(PlanState& state, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) <= sizeof(PlanState::bytes) && alignof(T) <= alignof(PlanState));
  std::memcpy(state.bytes.data(), &value, sizeof(T));
}

/// The value that put() stored.
template <class T>
const T& get(const PlanState& state) {
  return *reinterpret_cast<const T*>(state.bytes.data());
}

}  // namespace fp8_sdpa::detail

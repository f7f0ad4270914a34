// Counting in words of a workspace that nobody has cleared: a word bears the plan's tag above its
// count, and one that does not counts nothing (plan_tag.hpp).
#pragma once

#include <cstdint>

#include "attention/plan_tag.hpp"
#include "gpu/gpu.hpp"

namespace fp8_sdpa::attention {

inline constexpr int kCountBits = 64 - kPlanTagBits;

inline namespace GPU_BACKEND {

/// A word that has counted nothing yet. Whoever counts last leaves it so, for the next launch.
GPU_FN std::uint64_t no_count(std::uint64_t tag) { return tag << kCountBits; }

/// The count of a word before 1 was added, which found `before` there; `none`: no_count(). A word
/// that had no tag becomes a count first, and 1 is added anew.
GPU_FN std::uint64_t counted(std::uint64_t* word, std::uint64_t none, std::uint64_t before) {
  const auto is_count = [&](std::uint64_t x) { return (x - none) >> kCountBits == 0; };
  if (is_count(before)) return before - none;
  for (std::uint64_t seen = before + 1; !is_count(seen);) {
    const std::uint64_t found = gpu::atomic_cas_acq_rel_if(true, word, seen, none);
    seen = found == seen ? none : found;
  }
  return gpu::atomic_add_acq_rel(word, 1) - none;
}

/// Adds 1 to a word and returns its count before.
GPU_FN std::uint64_t count_up(std::uint64_t* word, std::uint64_t none) {
  return counted(word, none, gpu::atomic_add_acq_rel(word, 1));
}

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::attention

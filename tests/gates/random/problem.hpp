// Random problems: sizes, masks, formats, layouts, scales, input families, variants and schedules,
// whole tensors, ragged batches and caches in pages, each a function of (seed, index) alone, so
// that one line reproduces it anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dispatch/variant.hpp"
#include "gpu/executor_options.hpp"
#include "reference/judge/check.hpp"
#include "reference/oracle/case.hpp"
#include "tests/gates/serving/cache.hpp"

namespace fp8_sdpa::tests {

struct RandomProblem {
  const Variant* variant = nullptr;
  reference::Shape shape;
  Dtype dtype = Dtype::kE4M3;
  reference::CheckOptions options;
  ExecutorOptions executor;
  float softmax_scale = 0.0F;
  bool vary_descales = false;
  bool block_descales = false;  ///< varied too
  std::uint64_t input_seed = 0;
  /// How a ragged batch lies in memory; none: whole tensors, as `options` say.
  std::optional<CacheLayout> cache;
  /// Set where the variant declined what was drawn first; the problem is then one of the ladder's.
  std::string declined;

  /// One line for people.
  std::string describe() const;
};

/// Problem `index` of `seed` for a device. What the drawn variant declines is noted; its FP8
/// format, or its mask, grouping and head size, are then set to what every variant serves.
/// `max_scores` bounds batch * heads * seq_q * seq_kv.
RandomProblem random_problem(std::uint64_t seed, std::uint64_t index, const Device& device,
                             std::int64_t max_scores);

/// Codes, descales and references of a problem.
std::shared_ptr<const reference::CaseData> data_of(const RandomProblem& problem);

}  // namespace fp8_sdpa::tests

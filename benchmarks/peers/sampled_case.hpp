// A case for kernels of several makers: one scale per tensor, and references for as much of it as
// the oracle can do in seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fp8_sdpa/status.hpp"
#include "reference/case.hpp"
#include "reference/check.hpp"
#include "reference/model.hpp"
#include "reference/sampled.hpp"

namespace fp8_sdpa::bench {

/// Some rows of a problem as a problem of its own, with references: (batch, KV head) pairs as its
/// batch, one KV head, the query heads of that KV head, some query rows, and the keys they see.
struct Slice {
  std::shared_ptr<const reference::CaseData> data;
  /// For each (batch, query head) of `data`: its first row among the rows of the whole O.
  std::vector<std::int64_t> first_row;
};

struct SampledCase {
  std::shared_ptr<const reference::CaseData> whole;  ///< codes and descales; no references
  std::vector<Slice> slices;
};

/// Draws the inputs of (shape, seed), and quantises each tensor with one power-of-two scale
/// (quantise_with_one_scale()). Up to `max_scores` scores the one slice is all of it; beyond, the
/// first, the middle and the last rows of as many heads, spread evenly, as come to about that many.
Result<SampledCase> sample_case(const reference::Shape& shape, std::uint64_t seed,
                                std::int64_t max_scores = reference::kWholeScores);

/// What an output is rounded to on its way, and at its end.
struct Formats {
  reference::Weights weights = reference::Weights::kHalf;
  Dtype output = Dtype::kHalf;
};

/// Judges O, (batch, heads_q, seq_q, head_dim) contiguous, decoded, by the gates of check() that
/// look at numbers: SPEC's fixed ones and the error budgets, the latter for these formats. The
/// fixed gates on a kernel's own error are stated for 16-bit outputs; of an FP8 output its budget
/// alone says that. Of several slices the worst counts, gate by gate and number by number.
reference::CaseResult judge_output(const SampledCase& sampled, const std::vector<float>& o,
                                   const Formats& formats, const reference::Tolerances& tolerances);

}  // namespace fp8_sdpa::bench

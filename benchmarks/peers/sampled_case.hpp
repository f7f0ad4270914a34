// A case for kernels of several makers: one scale per tensor, and references for as much of it as
// the oracle can do in seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fp8_sdpa/status.hpp"
#include "reference/judge/check.hpp"
#include "reference/judge/sampled.hpp"
#include "reference/oracle/case.hpp"
#include "reference/oracle/model.hpp"

namespace fp8_sdpa::bench {

struct SampledCase {
  std::shared_ptr<const reference::CaseData> whole;  ///< codes and descales; no references
  reference::Sample sample;                          ///< what is judged of it
};

/// Draws the inputs of (shape, seed), and quantises each tensor with one power-of-two scale
/// (quantise_with_one_scale()). Up to `max_scores` scores it is judged whole; beyond, by
/// sample_rows_of() every (batch, head), of about that many scores.
Result<SampledCase> sample_case(const reference::Shape& shape, std::uint64_t seed,
                                std::int64_t max_scores = reference::kWholeScores);

using reference::Formats;

/// judge_sample() of O, (batch, heads_q, seq_q, head_dim) contiguous, decoded; an O of another size
/// fails the gate "output_size".
reference::CaseResult judge_output(const SampledCase& sampled, const std::vector<float>& o,
                                   const Formats& formats, const reference::Tolerances& tolerances,
                                   bool budgets_only = false);

}  // namespace fp8_sdpa::bench

// Cases whose scores are too many for the oracle: judged by some of their rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/check.hpp"

namespace fp8_sdpa::reference {

/// Query rows [first, first + rows) of every (batch, head).
struct RowRange {
  std::int64_t first = 0, rows = 0;
};

/// More scores than this take the oracle and the model too long: some seconds on a few cores.
inline constexpr std::int64_t kWholeScores = std::int64_t{1} << 26;

/// The ranges that stand for a tensor of `seq_q` rows: eight of 32 rows, the first and the last
/// among them, evenly spread and so that they begin at other places of a kernel's tiles; all rows
/// where those would be half of them.
std::vector<RowRange> sample_rows(std::int64_t seq_q);

/// The case of those rows alone, with its references: the same inputs, codes and descales; under
/// the causal mask K and V end with the last key that the last row sees, so that the mask, aligned
/// bottom-right, hides the same keys. `data` needs no references. @pre its last row sees a key.
std::shared_ptr<const CaseData> slice(const CaseData& data, const RowRange& range);

/// check() of a whole case whose references are not made (draw_case()): the variant runs on all of
/// it; the error budgets judge each of sample_rows(), the gates with fixed tolerances, which are
/// stated for whole heads, all of those together, and "finite" asks for no NaN or infinity in any
/// row. LSE is not judged. @pre the inputs are finite and every row sees a key.
Result<CaseResult> check_sampled(const Variant& variant, const CaseData& data, const Device& device,
                                 const Tolerances& tolerances, const CheckOptions& options = {});

}  // namespace fp8_sdpa::reference

// Cases whose scores are too many for the oracle: judged by some of their rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/judge/budget.hpp"
#include "reference/judge/check.hpp"

namespace fp8_sdpa::reference {

/// More scores than this take the oracle and the model too long: some seconds on a few cores.
inline constexpr std::int64_t kWholeScores = std::int64_t{1} << 26;

/// Rows of one range of sample_rows(), unless fewer are asked for.
inline constexpr std::int64_t kSampledRows = 32;

/// The ranges that stand for a tensor of `seq_q` rows: eight of `rows` rows, the first and the last
/// among them, evenly spread and so that they begin at other places of a kernel's tiles; all rows
/// where those would be half of them.
std::vector<RowRange> sample_rows(std::int64_t seq_q, std::int64_t rows = kSampledRows);

/// The ranges that a shape is judged by: all rows up to `max_scores` scores; beyond, sample_rows()
/// of every (batch, head), each of as many rows, 1 to kSampledRows, as come to about that many.
std::vector<RowRange> sample_rows_of(const Shape& shape, std::int64_t max_scores);

/// Ranges of rows of every (batch, head) of a case, with what they should be.
struct Sample {
  std::vector<RowRange> ranges;  ///< of the case
  /// These rows, side by side, as a case of their own: the same inputs, codes and descales, and
  /// the keys that each row sees; with references, without the unquantised K and V.
  std::shared_ptr<const CaseData> rows;
};

/// Computes the references of those rows, once. `whole` needs none.
Sample take_sample(const CaseData& whole, std::vector<RowRange> ranges);

/// The sampled rows of a (batch, heads_q, seq_q, head_dim) tensor, as Sample::rows has them.
template <class T>
std::vector<T> rows_of(const std::vector<T>& values, const Shape& whole,
                       const std::vector<RowRange>& ranges) {
  std::vector<T> taken;
  const std::int64_t dim = whole.head_dim;
  for (std::int64_t head = 0; head < std::int64_t{whole.batch} * whole.heads_q; ++head) {
    for (const RowRange& range : ranges) {
      const auto* first = values.data() + (head * whole.seq_q + range.first) * dim;
      taken.insert(taken.end(), first, first + range.rows * dim);
    }
  }
  return taken;
}

/// What an output is rounded to on its way, and at its end.
struct Formats {
  Weights weights = Weights::kHalf;
  Dtype output = Dtype::kHalf;
};

/// Judges rows_of() an output, decoded, by the gates of check() that look at numbers: the fixed
/// ones on all rows together, unless `budgets_only`, and the error budgets of these formats on all
/// of them and on each range. Of budgets of one name the worst counts. The fixed gates on a
/// kernel's own error are stated for 16-bit outputs; of an FP8 output its budget alone says that.
/// LSE is not judged, and `variant` is not set.
CaseResult judge_sample(const Sample& sample, const std::vector<float>& got, const Formats& formats,
                        const Tolerances& tolerances, bool budgets_only = false);

/// check() of a whole case whose references are not made (draw_case()): the variant runs on all of
/// it; judge_sample() judges sample_rows(), and "finite" asks for no NaN or infinity in any row.
/// LSE is not judged. @pre the inputs are finite and every row sees a key.
Result<CaseResult> check_sampled(const Variant& variant, const CaseData& data, const Device& device,
                                 const Tolerances& tolerances, const CheckOptions& options = {});

}  // namespace fp8_sdpa::reference

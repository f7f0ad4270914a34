// One case: a variant on a shape, a seed and a device, judged by every gate. Tests and the runner
// both call this.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dispatch/variant.hpp"
#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "reference/config/config.hpp"
#include "reference/judge/gates.hpp"
#include "reference/oracle/case.hpp"

namespace fp8_sdpa::reference {

/// How a case is run.
struct CheckOptions {
  Dtype output = Dtype::kHalf;
  /// Of an E4M3 output, a power of two. 0: scale_of_output().
  float o_scale = 0.0F;
  Dtype values = Dtype::kHalf;  ///< V's, half or bf16, where Q and K are of signed bytes
  bool sequence_major = false;  ///< tensors laid out (B,S,H,D) in memory instead of (B,H,S,D)
  bool transposed_v = false;    ///< V laid out (B,H,D,S), each row of keys padded to 16 bytes
  bool padded = false;          ///< rows (and heads) with 16 elements of NaN between them
  bool budgets_only = false;    ///< leave out the tolerances stated for the named shapes
  bool lse = true;              ///< also ask for, and judge, the log-sum-exp
  LseSum lse_sum = LseSum::kDenominator;
  bool rerun = true;  ///< run twice and ask for equal bits
  PlanOptions plan{};
  /// What else is done to the problem's views: unused strides, broadcasts.
  std::function<void(Problem&)> edit = nullptr;
};

struct CaseResult {
  std::string shape;
  std::uint64_t seed = 0;
  std::string variant;
  Metrics quantised;  ///< against the reference on unquantised inputs: includes FP8 rounding
  Metrics kernel;     ///< against the reference on dequantised inputs: the kernel's own error
  std::vector<GateResult> gates;
  bool pass = false;
  std::vector<std::uint16_t> output;  ///< O's bits, as RunOutput::o
  std::vector<float> log_sum_exp;     ///< (batch, heads_q, seq_q), empty if not asked for
  /// On failure one line: the gate, the worst element's index, got and want, and, where the gate
  /// sees both, whether the kernel or the quantisation of its inputs is at fault.
  std::string failure() const;
};

/// Runs the variant with poisoned output and guard bands around every tensor, checks that inputs
/// and guards are unchanged, and judges the output. A Status other than ok means that it could not
/// be run at all. A variant that has a kernel of its own for an LSE of exact sums is also judged
/// with one: the verdict is of both, output and LSE are the first's, metrics the worse of the two.
Result<CaseResult> check(const Variant& variant, const CaseData& data, const Device& device,
                         const Tolerances& tolerances, const CheckOptions& options = {});

/// The options with the variant's format of V, and without an LSE where it serves the problem but
/// gives none: its output is judged all the same. check(), serves() and run_variant() ask for what
/// a variant gives.
CheckOptions what_it_gives(const Variant& variant, const Shape& shape, Dtype dtype,
                           const Device& device, CheckOptions options);

/// Whether the variant would serve check()'s problem for this shape; if not, why. Computes nothing.
Status serves(const Variant& variant, const Shape& shape, Dtype dtype, const Device& device,
              const CheckOptions& options = {});

}  // namespace fp8_sdpa::reference

// Attention on bf16, half or float tensors in one call: quantise() to FP8 or int8, with rotation of
// Q and K and smoothing of K, then forward(), on one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa {

/// What an unquantised problem becomes.
enum class Precision : std::uint8_t {
  kFp8,  ///< Q, K and V in E4M3
  /// Q and K in int8, V as it is: several times more exact, at some four fifths of the speed, on
  /// sm_90 and the host executor. V is half or bf16; descales are of heads.
  kInt8,
};
constexpr const char* name_of(Precision precision) {
  return precision == Precision::kInt8 ? "int8" : "fp8";
}

/// A problem before its quantisation.
struct UnquantisedProblem {
  /// As Problem says, but that q, k and v are bf16, half or float, with stride_dim 1, that nothing
  /// is broadcast over O, and that `descales` is not looked at. Whole tensors of head_dim 64, 128
  /// or 256: Ragged and Pages are kUnsupported. O and LSE are apart from each other and from the
  /// workspace; O may lie where Q, K or V do, which have been read by then.
  Problem attention;
  /// Quantisation::rotate of Q and K, by `seed`: outliers of a channel cost less.
  bool rotate = true;
  std::uint64_t seed = 0;
  /// Quantisation::smooth of K: what all keys have in common costs nothing. The LSE is that of K as
  /// it was.
  bool smooth = true;
  /// Of Precision::kFp8. kBlock: descales of blocks, which are more exact, if q, k and v have one
  /// dtype, a variant
  /// serves them, and that is predicted to be faster, or a variant is given, or
  /// PlanOptions::batch_invariant is set; else, and with kHead, of heads.
  Granularity granularity = Granularity::kHead;
  Precision precision = Precision::kFp8;
};

/// Such a problem bound to a device and a variant. Cheap to copy; holds pointers into the caller's
/// tensors.
class UnquantisedPlan {
 public:
  static constexpr std::size_t kWorkspaceAlignment = 256;

  const UnquantisedProblem& problem() const { return problem_; }
  /// The attention kernel's plan, on codes. Its tensors have no memory yet.
  const Plan& attention() const { return attention_; }
  /// Bytes of device memory that forward() needs beside the tensors, aligned to
  /// kWorkspaceAlignment: Q, K and V as codes, and what their kernels need.
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// Plan::expected_error() with what quantisation adds, beside exact attention of the tensors as
  /// they are: of normal inputs, whose scores have a standard deviation of 1 (in natural logs).
  double expected_error() const;
  /// Plan::explain() of attention(), and lines for what runs before it and the error of both.
  std::string explain() const;

 private:
  friend Result<UnquantisedPlan> plan(const UnquantisedProblem&, const Device&, const Variant*,
                                      const PlanOptions&);
  friend Status rebind(UnquantisedPlan&, const UnquantisedProblem&);
  friend Status forward(const UnquantisedPlan&, void*, CUstream_st*);
  UnquantisedProblem problem_;
  Plan attention_;
  std::size_t workspace_bytes_ = 0;
};

/// Checks the problem, picks a variant unless one is given, and binds them: plan() of quantise.hpp
/// for Q, K and V, and of plan.hpp for their codes. Their errors, with "q: " before what is
/// said of Q's quantisation; kInvalidArgument for PlanOptions::no_workspace.
Result<UnquantisedPlan> plan(const UnquantisedProblem& problem, const Device& device,
                             const Variant* variant = nullptr, const PlanOptions& options = {});

/// Makes the plan one of a problem that differs from the plan's in addresses, softmax_scale and
/// seed alone: as rebind() of plan.hpp.
Status rebind(UnquantisedPlan& plan, const UnquantisedProblem& problem);

/// Launches the plan on `stream`: Q, K and V are quantised (with descales of blocks, or of heads of
/// at most 128 rows of one dtype on an sm_90, by one kernel, and one before it for the mean of more
/// than 256 keys; else by one kernel each), then attention runs, and with smoothing, where an LSE
/// is asked for, a kernel that puts q . mean back into it. `workspace` has workspace_bytes(),
/// whatever is in them; launches that may run at the same time need one each. Errors, streams and
/// graphs: as of forward(const Plan&, ...).
Status forward(const UnquantisedPlan& plan, void* workspace, CUstream_st* stream);

}  // namespace fp8_sdpa

// The rounding model of a right kernel: attention in fp32 that rounds where FP8 attention kernels
// round. It is what error budgets are made of (budget.hpp), and what faults of the rounding model
// are mutations of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/oracle/oracle.hpp"
#include "reference/oracle/weight_rounding.hpp"

namespace fp8_sdpa::reference {

/// What P is rounded to before P V.
enum class Weights : std::uint8_t {
  kHalf,      ///< unnormalised weights, at most 1
  kE4M3,      ///< weights times 2^8, at most 256; the factor cancels in O / l
  kBFloat16,  ///< unnormalised weights, at most 1: what kernels on bf16 tensors do
};

/// How products are summed.
enum class Accumulator : std::uint8_t {
  kFp32,
  /// FP8 tensor cores of Ada and Hopper: each multiply aligns its 32 products and the running sum
  /// to the largest exponent among them and cuts every term to 13 fractional bits, toward zero.
  /// Source: "Dissecting Tensor Cores via Microbenchmarks" (arXiv 2206.02874) for the method,
  /// DeepSeek-V3 (arXiv 2412.19437), section 3.3.2, for the consequence. Sums of P V are carried
  /// over to fp32 registers after each tile of 64 keys.
  kTruncated13,
  kTruncated13Carried,  ///< the same with P V's sum in the tensor core's accumulator throughout
};

/// Where the rounding model rounds.
struct ModelOptions {
  Weights weights = Weights::kHalf;
  Accumulator accumulator = Accumulator::kFp32;
  /// FP8 outputs have a scale that keeps them out of the subnormals.
  Dtype output = Dtype::kHalf;
};

/// What the rounding model computed, and how wrong it expects to be.
struct ModelRun {
  Attention attention;  ///< O as the output format holds it, decoded; LSE
  /// (batch, heads_q, seq_q): the expected mean square error of an element of that row of O, from
  /// the roundings' variances. Derived in model.cpp.
  std::vector<double> expected_square;
  /// (batch, heads_q, seq_q): the mean square error of an element of that row of O that rounding P
  /// makes, for several maxima that P may be relative to; empty unless P is E4M3.
  std::vector<RoundingSquares> rounding_squares;

  /// The same of the row sums of rounded weights, over those of exact ones: 1 where nothing is
  /// rounded, 0 in a row without keys.
  std::vector<float> sums;
  std::vector<double> expected_sum_square;
  std::vector<RoundingSquares> sum_rounding_squares;
};

/// Runs the rounding model on codes. q is (batch, heads_q, seq_q, head_dim), k and v are (batch,
/// heads_kv, seq_kv, head_dim), each with one descale per (batch, head). The result does not depend
/// on the number of OS threads. `keys_of_row` is that of attention_fp64().
ModelRun run_model(const QuantisedTensor& q, const QuantisedTensor& k, const QuantisedTensor& v,
                   const AttentionSizes& sizes, float softmax_scale, const ModelOptions& options,
                   std::span<const std::int64_t> keys_of_row = {});

}  // namespace fp8_sdpa::reference

// One case's data: what the variants that run on a (shape, seed) share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/formats/quantise.hpp"
#include "reference/inputs/inputs.hpp"
#include "reference/inputs/shape.hpp"
#include "reference/oracle/oracle.hpp"

namespace fp8_sdpa::reference {

/// Budgets that were made, by options. Thread-safe; of judge/, which asks for them.
class BudgetCache;
std::shared_ptr<BudgetCache> make_budget_cache();

struct Qkv;

/// What does not change between the variants of one (shape, seed). Immutable once made; share it.
struct CaseData {
  Shape shape;
  std::uint64_t seed = 0;
  /// Of the codes; with kInt8 those of V are E4M3, which kernels take widened to 16 bits.
  Dtype dtype = Dtype::kE4M3;
  bool drawn = true;  ///< by seed; otherwise a user's tensors
  float softmax_scale = 0.0F;
  Inputs inputs;  ///< unquantised
  /// How many keys each row sees, (seq_q), where the rows of Q are some of a larger problem's
  /// (sampled.hpp); empty: as the mask says.
  std::vector<std::int64_t> keys_of_row;
  QuantisedTensor q, k, v;        ///< codes and descales
  Attention reference_quantised;  ///< fp64 on the unquantised inputs: for the gates that include
                                  ///< FP8 rounding. An infinite input stands for the finite value
                                  ///< that it saturates to.
  Attention reference_kernel;     ///< fp64 on the dequantised inputs: for the kernel's own error
  double max_abs_v = 0.0;         ///< largest finite |V|, dequantised
  double score_bound = 0.0;       ///< largest scale * ||q_i|| * ||k_j|| of any head, dequantised
  std::shared_ptr<BudgetCache> budgets;  ///< error budgets as they are asked for: budget_of()

  /// Infinities of Q, K and V that were saturated.
  std::int64_t saturated_infinities() const {
    return q.saturated_infinities + k.saturated_infinities + v.saturated_infinities;
  }
};

/// Draws and quantises the inputs of (shape, seed), with softmax scale 1 / sqrt(head_dim), and
/// computes the references. @pre load_config() accepted the shape, or sizes are positive and
/// heads_kv divides heads_q. Throws std::invalid_argument for an input family that
/// find_input_family() does not know, and std::bad_alloc.
std::shared_ptr<const CaseData> make_case(const Shape& shape, std::uint64_t seed,
                                          Dtype dtype = Dtype::kE4M3);

/// The same without references, bounds and budgets, for cases too large for them.
CaseData draw_case(const Shape& shape, std::uint64_t seed, Dtype dtype = Dtype::kE4M3);
/// Computes what draw_case() leaves out, from `data`'s inputs, codes and descales.
std::shared_ptr<const CaseData> with_references(CaseData data);
/// The same with the unquantised K and V from elsewhere: `data` does not hold them.
std::shared_ptr<const CaseData> with_references(CaseData data, const std::vector<float>& k,
                                                const std::vector<float>& v);

/// The same as the first from tensors that load_qkv() read, quantised in that way; from_codes()
/// where they are codes, of whatever `dtype`. `name` becomes the shape's name. kOutOfMemory if they
/// do not fit.
Result<std::shared_ptr<const CaseData>> make_case(Qkv tensors, const std::string& name, Mask mask,
                                                  Dtype dtype = Dtype::kE4M3,
                                                  const QuantisingWay& way = {});

/// softmax_scale * q . mean of each row of a case whose K was smoothed, (batch, heads_q, seq_q): by
/// how much its LSE is short of that of K as it was. `rotated` as the case was made.
std::vector<float> lse_of_means(const CaseData& data, bool rotated);

/// A case of given codes and descales: `data` with its inputs, references and bounds made anew from
/// them. Inputs become the dequantised values.
std::shared_ptr<const CaseData> from_codes(CaseData data);

}  // namespace fp8_sdpa::reference

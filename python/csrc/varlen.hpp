// Attention of sequences of different lengths, and appending to their caches, for PyTorch's
// tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "fp8_sdpa/problem.hpp"
#include "tensors.hpp"

namespace fp8_sdpa::torch_op {

/// What a caller of any form of attention gives.
struct Options {
  bool causal;
  std::optional<double> scale;
  std::optional<LseSum> lse = {};  ///< of which sum; nothing for no LSE
  std::optional<TorchTensor> out_scale = {};
};
/// Problem::o_scale of the options: one float32 where `out` is float8_e4m3fn. Fails where it is
/// missing, or has no business.
const float* output_scale(const Place& place, const Options& options, ScalarType out);
/// And what he gets. O, and the LSE if it was asked for.
struct Results {
  TorchTensor out;
  std::optional<TorchTensor> lse;

  std::tuple<TorchTensor, TorchTensor> both() && { return {std::move(out), std::move(*lse)}; }
};
/// Scale, mask and kind of LSE of a problem that has its head_dim. Fails for a scale that is none.
void set_options(const Options& options, Problem& problem);

/// x ~ code * descale: float32, of q's (batch, heads) and of k's, or of q's (batch, heads, blocks)
/// and of k's.
struct DescaleTensors {
  TorchTensor q, k, v;

  /// kBlock where one of them has three axes.
  Granularity granularity() const;
  Descales pointers(Granularity granularity) const;
};
/// From what broadcasts to them; what has their shape is itself. Of blocks, all have three axes.
DescaleTensors broadcast_descales(const Place& place, const Problem& problem, DescaleTensors given,
                                  Granularity granularity);

/// Where sequences lie and how long they are: python/src/fp8_sdpa/_varlen.py.
struct Lengths {
  std::optional<TorchTensor> cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, fault;
  std::int64_t max_seqlen_q, max_seqlen_k;
};
/// O as q is shaped, the LSE (heads_q, total_q) of packed queries, else (batch, heads_q, seq_q).
Results attention_varlen(const Place& place, const TorchTensor& q, const TorchTensor& k,
                         const TorchTensor& v, const Lengths& lengths, DescaleTensors descales,
                         ScalarType out_type, const Options& options, bool batch_invariant);
/// What they are where no row sees a key: 0 and -inf.
void set_to_no_keys(Results& results);

/// Rotary angles of K: python/src/fp8_sdpa/_varlen.py.
struct Angles {
  std::optional<TorchTensor> cos_sin, positions;
  bool interleaved;
};
/// Writes into the caches.
void append_to_cache(const Place& place, const TorchTensor& k, const TorchTensor& v,
                     const TorchTensor& k_cache, const TorchTensor& v_cache,
                     const TorchTensor& slot_mapping, const TorchTensor& k_descale,
                     const TorchTensor& v_descale, const Angles& angles,
                     const std::optional<TorchTensor>& fault);

}  // namespace fp8_sdpa::torch_op

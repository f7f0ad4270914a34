// Quantisation to FP8, or to signed bytes, with one scale per (batch, head), or per block of its
// rows: amax / the format's largest number ("FP8 Formats for Deep Learning", arXiv 2209.05433,
// section 3).
#pragma once

#include <cstdint>
#include <vector>

#include "fp8_sdpa/problem.hpp"

namespace fp8_sdpa::reference {

/// A tensor of codes: value ~ codes[i] * descales[descale_of(i)].
struct QuantisedTensor {
  Dtype dtype = Dtype::kE4M3;
  std::vector<std::uint8_t> codes;        ///< (batch, heads, seq, head_dim), contiguous
  std::vector<float> descales;            ///< (batch, heads); of blocks (batch, heads, blocks)
  std::int64_t saturated_infinities = 0;  ///< infinities in the input, now the largest finite code
  /// Elements of a block of rows that share a descale, the last of a head perhaps fewer, and of a
  /// head; 0: a head shares one.
  std::int64_t per_block = 0;
  std::int64_t per_head = 0;

  std::int64_t blocks() const {
    return per_block == 0 ? 1 : (per_head + per_block - 1) / per_block;
  }
  std::size_t descale_of(std::size_t element) const {
    if (per_block == 0) return element / (codes.size() / descales.size());
    const auto head = element / static_cast<std::size_t>(per_head);
    const auto in_head = element % static_cast<std::size_t>(per_head);
    return head * static_cast<std::size_t>(blocks()) +
           in_head / static_cast<std::size_t>(per_block);
  }
  /// An element's descale over that of its head's first block.
  float in_units_of_first(std::size_t element) const {
    if (per_block == 0) return 1.0F;
    const std::size_t at = descale_of(element);
    return descales[at] /
           descales[at / static_cast<std::size_t>(blocks()) * static_cast<std::size_t>(blocks())];
  }
};

/// Quantises `values`, (batch, heads, per_head) contiguous with heads_total = batch * heads.
/// descale = amax / max_finite(dtype) in fp32, 1 where that is below 2^-100; amax ignores NaN and
/// infinities; but of signed bytes, which have none, a NaN makes the descale NaN. code =
/// encode_code(value / descale), divided in fp32. A descale a head, or, where
/// per_block is not 0, one for each `per_block` elements of a head. @pre values.size() ==
/// heads_total * per_head, has_codes(dtype).
QuantisedTensor quantise(const std::vector<float>& values, std::int64_t heads_total,
                         std::int64_t per_head, Dtype dtype, std::int64_t per_block = 0);

/// The same with one descale for the whole tensor, repeated for each head: the smallest power of
/// two that is not below amax / max_finite(dtype). Each value is then exact in bf16 as well, so
/// that kernels with one scale per tensor, and kernels on bf16 tensors, can be given the same
/// problem.
QuantisedTensor quantise_with_one_scale(const std::vector<float>& values, std::int64_t heads_total,
                                        std::int64_t per_head, Dtype dtype);

/// A way of quantising Q, K and V, by the options of Quantisation.
struct QuantisingWay {
  bool rotate = false;  ///< Q and K
  bool smooth = false;  ///< K
  bool blocks = false;  ///< descales of kQueriesOfBlock and kKeysOfBlock rows, not of heads

  /// Elements of a block of Q, and of K and V; 0: of heads.
  std::int64_t per_block_q(int head_dim) const {
    return blocks ? std::int64_t{kQueriesOfBlock} * head_dim : 0;
  }
  std::int64_t per_block_kv(int head_dim) const {
    return blocks ? std::int64_t{kKeysOfBlock} * head_dim : 0;
  }
  bool operator==(const QuantisingWay&) const = default;
};

/// Quantisation::rotate of `values`, (rows, head_dim) contiguous, in double: x diag(r) H /
/// sqrt(head_dim) row by row, from the definition. @pre head_dim is a power of two.
std::vector<double> rotate(const std::vector<double>& values, int head_dim, std::uint64_t seed);

/// The mean of each channel over the rows of each head, (heads_total, head_dim): NaN and infinities
/// count as 0.
std::vector<double> means(const std::vector<double>& values, std::int64_t heads_total,
                          int head_dim);

/// What `values`, (heads_total, seq, head_dim) contiguous, are after the transformations that are
/// asked for: rotate() by `seed`, then less means().
std::vector<float> transformed(const std::vector<float>& values, std::int64_t heads_total,
                               int head_dim, bool rotated, bool smoothed, std::uint64_t seed = 0);

/// The same, to E4M3 and back, with a descale a head, or one for each `block_rows` rows.
std::vector<float> quantised(const std::vector<float>& values, std::int64_t heads_total,
                             int head_dim, bool rotated, bool smoothed, std::uint64_t seed = 0,
                             int block_rows = 0);

/// The same tensor with a descale for each block of `per_block` elements of its heads, which all
/// have their head's.
QuantisedTensor in_blocks(QuantisedTensor tensor, std::int64_t per_block);

/// codes[i] * descale, in fp32.
std::vector<float> dequantise(const QuantisedTensor& tensor);

/// `values` with each infinity replaced by the finite value that quantise() took it for. `tensor`
/// is quantise()'s result for `values`.
std::vector<float> saturate_infinities(const std::vector<float>& values,
                                       const QuantisedTensor& tensor);

}  // namespace fp8_sdpa::reference

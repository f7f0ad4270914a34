// From bf16, half or float tensors to the FP8 or int8 codes and descales that a Problem takes, on
// the device: amax / the format's largest number as the descale of each (batch, head), or of each
// block of its rows, as in "FP8 Formats for Deep Learning", arXiv 2209.05433, section 3. Two
// options change what is quantised and leave O as it is: rotation of Q and K (QuaRot, arXiv
// 2404.00456; FlashAttention-3, arXiv 2407.08608, section 3.3, "incoherent processing"), and
// smoothing of K (SageAttention, arXiv 2410.02367, section 4.2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa {

/// One tensor to quantise. Nothing here is owned; all memory is that of the device which runs it.
struct Quantisation {
  int batch = 0;  ///< sizes are 1 or more
  int heads = 0;
  std::int64_t seq = 0;  ///< at most 2^30
  int head_dim = 0;      ///< 64, 128 or 256
  Tensor from;           ///< (batch, heads, seq, head_dim), bf16, half or float; stride_dim 1
  Tensor codes;  ///< (batch, heads, seq, head_dim), E4M3, E5M2 or int8; stride_dim 1; written
  /// (batch, heads), contiguous: from ~ code * descale; the code is x * (1 / descale), in fp32, to
  /// the nearest, ties to even, and saturates. Written: amax over the finite values / the
  /// largest finite code, 1 where that is below 2^-100; of int8, whose codes are -127 to 127 and
  /// none of them NaN, NaN where a value is one. Read where static_descales says so.
  float* descales = nullptr;
  /// The caller's descales are taken, each positive and at least 2^-100; what is larger than the
  /// largest code saturates.
  bool static_descales = false;
  /// 0: as above. Else a descale for so many rows of a head, the last block perhaps shorter:
  /// kQueriesOfBlock or kKeysOfBlock, which Descales::granularity kBlock takes. Descales are then
  /// (batch, heads, blocks), and amax is the block's. Not of int8.
  int block_rows = 0;
  /// x diag(r) H / sqrt(head_dim) is quantised in place of x, with H the Hadamard matrix in natural
  /// order and r of 1 and -1: bit i % 64 of splitmix64(seed + i / 64), set for -1. Q and K rotated
  /// by one seed have the scores of Q and K; outliers of a channel are spread over all of them.
  bool rotate = false;
  std::uint64_t seed = 0;
  /// The mean over seq, of which NaN and infinities count as 0, is subtracted from each channel,
  /// after the rotation: for K. O stays as it is; each row's LSE is short of softmax_scale * q .
  /// mean, with the row's q as it was before its own quantisation (and after its own rotation):
  /// softmax_scale times what `dots` of Q has where dot_with is K's mean.
  bool smooth = false;
  float* mean = nullptr;  ///< optional (batch, heads, head_dim), contiguous: written by smooth
  /// Optional, both or none: (batch, heads / dot_group, head_dim), contiguous, read; and (batch,
  /// heads, seq), contiguous, written: the dot product of each row, rotated but not smoothed, with
  /// the vector of its group of `dot_group` heads, in fp32.
  const float* dot_with = nullptr;
  float* dots = nullptr;
  int dot_group = 1;
  /// Optional counter in device memory, not reset: the launch adds the number of infinities in
  /// `from` to it. They become the largest finite code of their sign, or, where rotated, whatever
  /// sums with them are. NaN stays NaN, but for int8.
  std::uint32_t* infinities = nullptr;
};

/// A tensor to quantise, bound to a device. Cheap to copy; holds pointers into the caller's memory.
class QuantisePlan {
 public:
  static constexpr std::size_t kWorkspaceAlignment = 16;

  const Quantisation& quantisation() const { return quantisation_; }
  const Device& device() const { return device_; }
  /// Bytes of device memory that quantise() needs beside the tensors, aligned to
  /// kWorkspaceAlignment; never 0.
  std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  friend Result<QuantisePlan> plan(const Quantisation&, const Device&);
  Quantisation quantisation_;
  Device device_;
  std::size_t workspace_bytes_ = 0;
};

/// Checks the quantisation and binds it. kInvalidArgument or kUnsupported, with the reason, before
/// anything is launched. Tensors are as Tensor says, `codes` as O is; what is written is apart from
/// everything else. The device is an sm_80 or newer, with block_rows an sm_90, or the host
/// executor. With block_rows, rows are read by TMA: strides of `from` are below 2^40 bytes, and
/// that of seq is not 0.
Result<QuantisePlan> plan(const Quantisation& quantisation, const Device& device);

/// Launches the plan on `stream`: one kernel, which reads `from` from memory once (parts of it
/// again from the L2 cache) and writes the codes. Its launch is cooperative: it begins when the
/// device has room for all its blocks, and other kernels run beside it as far as they fit. With
/// block_rows, and on an sm_90 with static_descales: an ordinary kernel, and with smooth, where a
/// head has more than 256 rows, one before it that adds up columns.
/// `workspace` has workspace_bytes(), whatever is in them; launches that may run at the same time
/// need one each. Errors, streams and graphs: as of forward(const Plan&, ...). The same bits come
/// out whenever it runs.
Status quantise(const QuantisePlan& plan, void* workspace, CUstream_st* stream);

}  // namespace fp8_sdpa

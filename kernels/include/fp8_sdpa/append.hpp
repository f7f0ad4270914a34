// New keys and values into an FP8 cache, in one kernel: K with a rotary embedding (RoFormer, arXiv
// 2104.09864, section 3.2) where one is asked for, quantised with the cache's scales, written where
// each token's slot says (vLLM: Kwon et al., arXiv 2309.06180, section 4.2). What Problem::pages
// reads.
#pragma once

#include <cstdint>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/problem.hpp"
#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa {

/// Rotation of pairs of K's columns by angles of the token's position. Of the first `dim` columns
/// column i is paired with i + dim / 2, or, interleaved, 2 i with 2 i + 1: (a, b) becomes (a cos -
/// b sin, b cos + a sin), in fp32.
struct Rotary {
  /// (max_positions, dim), contiguous, from a multiple of 16 bytes on: cos of dim / 2 angles, then
  /// sin of them. Null: no rotation, and the others are 0.
  const float* cos_sin = nullptr;
  const std::int64_t* positions = nullptr;  ///< (tokens)
  std::int64_t max_positions = 0;
  int dim = 0;  ///< a multiple of 16, at most head_dim
  bool interleaved = false;
};

/// What to append. Nothing here is owned; all memory is that of the device which runs it, and is
/// read when the kernel runs, so that a captured CUDA graph sees new slots.
struct Append {
  int tokens = 0;    ///< sizes are 1 or more
  int heads = 0;     ///< of K and V
  int head_dim = 0;  ///< a multiple of 16, at most 256
  Tensor k;          ///< (1, heads, tokens, head_dim), bf16, half or float; stride_dim 1
  Tensor v;          ///< as k
  /// (pages, heads, page_size, head_dim), E4M3 or E5M2; stride_dim 1; written. A cache that is not
  /// in pages has one a sequence.
  Tensor k_cache;
  /// As k_cache, and apart from it; or of its strides and between its rows, heads or pages, as the
  /// two halves of one tensor are.
  Tensor v_cache;
  int pages = 0;
  int page_size = 0;  ///< pages * page_size is below 2^31
  /// (tokens): the token's keys and values become row slot % page_size of page slot / page_size. No
  /// two are equal. Nothing is written of a token whose slot is negative. Nor is it where a slot
  /// is not within the cache, or a position not within Rotary::max_positions: `fault` then becomes
  /// 1.
  const std::int64_t* slots = nullptr;
  /// (heads), contiguous: x ~ code * descale, as Quantisation::static_descales, each positive and
  /// at least 2^-100. NaN stays NaN; what is larger than the largest code, infinities among it,
  /// saturates.
  const float* descale_k = nullptr;
  const float* descale_v = nullptr;
  Rotary rotary;
  std::uint32_t* fault = nullptr;  ///< optional; only ever becomes 1
};

/// An append bound to a device. Cheap to copy; holds pointers into the caller's memory.
class AppendPlan {
 public:
  const Append& what() const { return append_; }
  const Device& device() const { return device_; }

 private:
  friend Result<AppendPlan> plan(const Append&, const Device&);
  Append append_;
  Device device_;
};

/// Checks the tensors and binds them. kInvalidArgument or kUnsupported, with the reason, before
/// anything is launched. Tensors are as Tensor says, caches as O is; what is written is apart from
/// what is read. The device is an sm_80 or newer, or the host executor.
Result<AppendPlan> plan(const Append& append, const Device& device);

/// Launches the plan on `stream`. Errors, streams and graphs: as of forward(const Plan&, ...).
Status append(const AppendPlan& plan, CUstream_st* stream);

}  // namespace fp8_sdpa

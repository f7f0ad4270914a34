// The problem: O = softmax(scale * Q K^T + mask) V, forward, with FP8 Q, K and V, or, more exact,
// with Q and K in 8-bit integers (SageAttention, arXiv 2410.02367) and V in 16 bits: attention as
// in Vaswani et al., arXiv 1706.03762, section 3.2.1, computed tile by tile as in FlashAttention-2,
// arXiv 2307.08691, section 3.1.
//
// A row that sees no key, or whose attended scores are all -inf, has O = 0 and LSE = -inf. NaN in
// Q, or in K or V at a key that a row sees, gives NaN in that row of O; at other keys it does not,
// except that NaN in V may reach other rows of the same tile in the sm90 and decode kernels (their
// READMEs, "Contracts").
#pragma once

#include <cstdint>

namespace fp8_sdpa {

/// Element types. FP8 formats are those of "FP8 Formats for Deep Learning" (arXiv 2209.05433,
/// section 3); kInt8 is a signed byte.
enum class Dtype : std::uint8_t { kE4M3, kE5M2, kHalf, kBFloat16, kFloat, kInt8 };

/// Bytes of one element.
constexpr int size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kE4M3:
    case Dtype::kE5M2:
    case Dtype::kInt8: return 1;
    case Dtype::kHalf:
    case Dtype::kBFloat16: return 2;
    case Dtype::kFloat: return 4;
  }
  return 0;
}
constexpr bool is_fp8(Dtype dtype) { return dtype == Dtype::kE4M3 || dtype == Dtype::kE5M2; }
constexpr const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kE4M3: return "e4m3";
    case Dtype::kE5M2: return "e5m2";
    case Dtype::kHalf: return "half";
    case Dtype::kBFloat16: return "bf16";
    case Dtype::kFloat: return "float";
    case Dtype::kInt8: return "int8";
  }
  return "unknown";
}

/// Which keys a query sees. kCausal is aligned bottom-right: query i sees keys j <= i + seq_kv -
/// seq_q.
enum class Mask : std::uint8_t { kNone, kCausal };
constexpr const char* name_of(Mask mask) { return mask == Mask::kCausal ? "causal" : "none"; }

/// A (batch, head, seq, dim) view. Strides count elements. stride_dim is 1; a V with another is
/// transposed, and its stride_seq is 1. The base pointer and every stride but this unit one are
/// multiples of 16 bytes, no stride is negative, and a stride times its axis' size is below 2^60;
/// a stride that is not the unit one and whose axis has size 1 is not looked at. Inputs may be
/// broadcast (stride 0) where the variant serves it. The axes of O nest: taken in the order of
/// their strides, each stride is at least the span of the axes before it, first element to last,
/// so that no two elements share memory. O and LSE, first byte to last, are apart from each other
/// and from everything that is read.
struct Tensor {
  void* data = nullptr;
  Dtype dtype = Dtype::kE4M3;
  std::int64_t stride_batch = 0;
  std::int64_t stride_head = 0;
  std::int64_t stride_seq = 0;
  std::int64_t stride_dim = 1;

  bool operator==(const Tensor&) const = default;
};

/// What a descale is of. Blocks of rows follow one another from a head's first row; its last one
/// may be shorter.
enum class Granularity : std::uint8_t {
  kHead,   ///< of a (batch, head)
  kBlock,  ///< of kQueriesOfBlock rows of Q, of kKeysOfBlock rows of K or V: whole tensors of more
           ///< than 128 keys, on sm_90 and the host executor; else kUnsupported
};
constexpr const char* name_of(Granularity granularity) {
  return granularity == Granularity::kBlock ? "block" : "head";
}
inline constexpr int kQueriesOfBlock = 64;
inline constexpr int kKeysOfBlock = 128;
/// Descales of a head of `rows` rows.
constexpr std::int64_t descales_of_head(Granularity granularity, std::int64_t rows,
                                        int rows_of_block) {
  return granularity == Granularity::kBlock ? (rows + rows_of_block - 1) / rows_of_block : 1;
}

/// Dequantisation scales, fp32, in the memory of the device that runs the kernel: x ~ code *
/// descale. Read when the kernel runs, so a captured CUDA graph sees new values.
///
/// Of heads: of any sign; with 0 every attended key weighs the same. Scores, scaled, must stay
/// below 2^21 in magnitude. They are fp32: a weight is off by up to |score| 2^-23 of itself, and
/// rows of larger scores may be wrong, or NaN. |q * k * softmax_scale| is below 2^101 in any case,
/// and below 4 where q and k are int8. Of blocks: each is positive, and the product as above; those
/// of V in one head are within a factor of 2^100 of each other. Rows that see a key of a block
/// whose descale is not positive are NaN.
struct Descales {
  /// (batch, heads_q), contiguous; of blocks (batch, heads_q, blocks). All three are required: for
  /// codes without a scale, ones; but v may be null where V is half or bf16.
  const float* q = nullptr;
  const float* k = nullptr;  ///< (batch, heads_kv), contiguous; of blocks (batch, heads_kv, blocks)
  const float* v = nullptr;  ///< as k
  Granularity granularity = Granularity::kHead;

  bool operator==(const Descales&) const = default;
};

/// Which sum of weights exp(s - m) an LSE is the logarithm of.
enum class LseSum : std::uint8_t {
  /// The one that O was divided by: partial results merge with it as if they had been computed
  /// together, O = sum exp(LSE_i - LSE) O_i. The fast sm90 kernels sum weights after rounding them
  /// to E4M3, so that their LSE differs from that of exact weights by the rounding's mean over the
  /// row: 0.03 / sqrt(n) rms where n keys share the weight, 0.08 + seq_kv 2^-18 at most.
  kDenominator,
  /// Of weights before rounding, in fp32: what a backward pass wants. Slower on sm90.
  kExact,
};

/// Sequences of different lengths. All arrays are int32 in device memory, read when the kernel
/// runs, so a captured CUDA graph sees new lengths; Problem::seq_q and seq_kv are the most that any
/// sequence has.
struct Ragged {
  /// (batch + 1), not decreasing: queries of sequence b are rows cu_seqlens_q[b] to
  /// cu_seqlens_q[b + 1] - 1 of q and o, which are packed: (total_q, heads_q, head_dim) by
  /// stride_seq and stride_head; stride_batch is not looked at. lse is (heads_q, total_q). A
  /// sequence whose rows are not within [0, total_q], or more than seq_q, writes nothing, and
  /// Problem::fault becomes 1. Null: seq_q queries each.
  const std::int32_t* cu_seqlens_q = nullptr;
  /// The same of k and v, which are packed: (total_kv, heads_kv, head_dim). A sequence whose rows
  /// are not within [0, total_kv], or more than seq_kv, has NaN in its rows of O and LSE, and
  /// Problem::fault becomes 1. Not with seqused_kv or Pages. Null: by seqused_kv.
  const std::int32_t* cu_seqlens_kv = nullptr;
  /// (batch): keys of each sequence, 0 to seq_kv, the first of what k and v hold. The others are
  /// not read. A sequence of another length has NaN in its rows of O and LSE, and Problem::fault
  /// becomes 1. Null: seq_kv keys each.
  const std::int32_t* seqused_kv = nullptr;
  /// Rows of q and o with cu_seqlens_q, below 2^31; 0 without. A tensor of no rows is looked at as
  /// one of a single row.
  std::int64_t total_q = 0;
  std::int64_t total_kv = 0;  ///< The same of k and v, with cu_seqlens_kv.

  bool operator==(const Ragged&) const = default;
};

/// Keys and values in pages (vLLM: Kwon et al., arXiv 2309.06180, section 4.2): k and v are pools,
/// (pages, heads_kv, page_size, head_dim) views whose stride_batch is that of a page.
struct Pages {
  /// (batch, max_pages), in device memory, read when the kernel runs: key j of a sequence is row j
  /// % page_size of page block_table[j / page_size]. Entries past a sequence's last key are not
  /// read. Sequences may share pages. Nothing is read through an entry outside [0, pages): the rows
  /// that see one of its keys, and perhaps others of the sequence, are NaN in O and LSE, and
  /// Problem::fault becomes 1. Null: no pages, and the sizes are 0.
  const std::int32_t* block_table = nullptr;
  int pages = 0;      ///< of the pools
  int page_size = 0;  ///< keys of a page, 1 or more
  int max_pages = 0;  ///< of a sequence; max_pages * page_size is at least seq_kv

  bool operator==(const Pages&) const = default;
};

/// One attention problem: sizes, tensors, scales. Nothing here is owned.
struct Problem {
  int batch = 0;  ///< sizes are 1 or more
  int heads_q = 0;
  int heads_kv = 0;        ///< divides heads_q (GQA, MQA)
  std::int64_t seq_q = 0;  ///< at most 2^40, as is seq_kv
  std::int64_t seq_kv = 0;
  int head_dim = 0;  ///< 64, 128 or 256 in most kernels: plan() declines others by kUnsupported
  Tensor q;          ///< (batch, heads_q, seq_q, head_dim), FP8 or int8; packed: Ragged
  Tensor k;          ///< (batch, heads_kv, seq_kv, head_dim), as q; packed: Ragged; Pages
  Tensor v;          ///< as k, but half or bf16 where q and k are int8
  Tensor o;          ///< as q, half, bf16 or e4m3; written
  /// With an e4m3 o one float in device memory, positive and finite, read when the kernel runs: o
  /// holds O / o_scale, rounded to nearest even, at most 448 in magnitude; NaN stays NaN. Else
  /// null.
  const float* o_scale = nullptr;
  float* lse = nullptr;  ///< optional (batch, heads_q, seq_q), contiguous: natural-log-sum-exp of
                         ///< the scaled scores
  LseSum lse_sum = LseSum::kDenominator;
  Descales descales;
  float softmax_scale = 0.0F;  ///< positive and finite; 0 for 1 / sqrt(head_dim)
  Mask mask = Mask::kNone;     ///< by the lengths of each sequence
  Ragged ragged;
  Pages pages;
  std::uint32_t* fault = nullptr;  ///< optional, one word of device memory, which only ever becomes
                                   ///< 1: Ragged and Pages say when

  bool operator==(const Problem&) const = default;
};

}  // namespace fp8_sdpa

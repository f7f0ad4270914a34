// What the library that build.sh makes of FlashAttention-3's sources offers: functions of C, so
// that nothing of its headers, compiler flags or CUDA runtime is ours.
#pragma once

#include <cstdint>

extern "C" {

/// Grows with every change of this file.
constexpr int kFlash3Abi = 3;

/// Strides in elements; a row's elements are side by side.
struct Flash3Strides {
  std::int64_t batch, head, row;
};

/// E4M3 or bf16 in, bf16 out. Pointers are to device memory.
struct Flash3Problem {
  int batch, heads_q, heads_kv, seq_q, seq_kv;
  int head_dim;  ///< 64, 128 or 256
  int causal;    ///< bottom-right
  int is_bf16;   ///< 1: Q, K and V are bf16, without descales, pages and splits, and heads_q ==
                 ///< heads_kv
  float softmax_scale;
  const void *q, *k, *v;
  void* o;
  Flash3Strides q_strides, k_strides, v_strides, o_strides;
  float* lse;  ///< (batch, heads_q, seq_q) contiguous; null: the plan's own memory
  /// One for each (batch, KV head), that of Q too; strides (batch, head).
  const float *q_descale, *k_descale, *v_descale;
  std::int64_t q_descale_strides[2], k_descale_strides[2], v_descale_strides[2];
  int never_split;  ///< 0: as many splits of the keys as its own heuristics say; 1: one
  /// Null: K and V are as dense as Q. Else their batch axis is that of pages: seq_kv is max_pages *
  /// page_size.
  const std::int32_t* block_table;  ///< (batch, max_pages)
  int pages, page_size, max_pages;
  const std::int32_t* seqused_kv;  ///< (batch); null: all have seq_kv keys. Read by prepare too.
};

/// A problem with what a launch needs beside the tensors. On the current device.
struct Flash3Plan;

/// Each of these returns null, or one line that says what is wrong, which stays until the next
/// call.
using Flash3Prepare = const char* (*)(const Flash3Problem* problem, Flash3Plan** plan);
using Flash3Launch = const char* (*)(const Flash3Plan* plan, void* stream);
using Flash3Release = void (*)(Flash3Plan* plan);
/// Parts that the keys are split into; 1: no split.
using Flash3Splits = int (*)(const Flash3Plan* plan);

/// What the library exports, as "flash3_functions".
struct Flash3Functions {
  int abi;             ///< kFlash3Abi; the first member for good
  const char* source;  ///< which sources, for people
  Flash3Prepare prepare;
  Flash3Launch launch;
  Flash3Release release;
  Flash3Splits splits;
};
}

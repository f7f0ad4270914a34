// The arithmetic of wgmma: 16 rows of a multiply, in 32 bits.
//
// Model (TensorCoreSums::kHopper), as measured on Hopper's FP8 tensor cores (Xie et al., MMA-Sim,
// arXiv 2511.10909): the 32 products and the accumulator are exact; each is aligned to the largest
// exponent among them (a product's is the sum of its factors', not normalised), cut off 13 bits
// below it towards zero, and added exactly; the sum is cut off to 13 fractional bits. With
// TensorCoreSums::kFloat: one fused multiply-add each in fp32, in the order of k, as mma has it.
// Halves and bfloat16 the same way, but 16 products, 25 bits, and a sum cut off to fp32. Integers
// are exact, modulo 2^32.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/executor_options.hpp"
#include "gpu/host/executor/raw_memory.hpp"
#include "gpu/host/tensor_core/wgmma.hpp"

namespace gpu::host {

inline constexpr int kWgmmaStepBytes = 32;   ///< of a row of A
inline constexpr int kWgmmaDepth = 32;       ///< k, of bytes
inline constexpr int kWgmma16BitDepth = 16;  ///< k, of 16-bit elements
inline constexpr int kWgmmaRows = 16;        ///< of one warp
inline constexpr int kWgmmaMaxColumns = 256;
inline constexpr int kChunksPerRow = kWgmmaStepBytes / static_cast<int>(kChunkBytes);
inline constexpr int kElementsOfChunk = static_cast<int>(kChunkBytes) / 2;  ///< of 16 bits

/// One warp's rows of A.
struct DecodedA {
  WgmmaType type;
  int depth;
  alignas(32) float value[kWgmmaRows][kWgmmaDepth];
  std::int8_t exponent[kWgmmaRows][kWgmmaDepth];          ///< of FP8
  alignas(32) float power[kWgmmaRows][kWgmma16BitDepth];  ///< of 16 bits: 2^exponent
  bool finite;

  /// `chunks` are the rows one after the other.
  void decode(const Chunk* chunks, WgmmaType of);
};

/// B, columns padded with zeros to a multiple of 32.
struct DecodedB {
  int n = 0;
  int pitch = 0;
  std::vector<float> value;           ///< (k, pitch)
  std::vector<std::int8_t> exponent;  ///< (k, pitch), of FP8
  std::vector<float> power;           ///< (k, pitch), of 16 bits: 2^exponent
  bool finite = true;

  /// Of bytes: `chunks` are the columns one after the other.
  void decode(const Chunk* chunks, int columns, WgmmaType of);
  /// Of 16-bit elements: `chunks` are the rows one after the other.
  void decode_n_major(const Chunk* chunks, int columns, WgmmaType of);
};

/// c (16 x n, row-major) = a b [+ c]; of integers c is their bits.
void wgmma_multiply(const DecodedA& a, const DecodedB& b, bool accumulate,
                    fp8_sdpa::TensorCoreSums sums, float* c);

}  // namespace gpu::host

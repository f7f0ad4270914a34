// The arithmetic of wgmma: 16 rows of a multiply, FP8 codes to fp32 registers.
//
// Model (TensorCoreSums::kHopper), as measured on Hopper's FP8 tensor cores (Xie et al., MMA-Sim,
// arXiv 2511.10909): the 32 products and the accumulator are exact; each is aligned to the largest
// exponent among them (a product's is the sum of its factors', not normalised), cut off 13 bits
// below it towards zero, and added exactly; the sum is cut off to 13 fractional bits. With
// TensorCoreSums::kFloat: one fused multiply-add each in fp32, in the order of k, as mma has it.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/executor_options.hpp"
#include "gpu/host/executor/raw_memory.hpp"

namespace gpu::host {

inline constexpr int kWgmmaDepth = 32;  ///< k, in FP8 codes, which are bytes
inline constexpr int kWgmmaRows = 16;   ///< of one warp
inline constexpr int kWgmmaMaxColumns = 256;
inline constexpr int kChunksPerRow = kWgmmaDepth / static_cast<int>(kChunkBytes);

/// One warp's rows of A.
struct DecodedA {
  alignas(32) float value[kWgmmaRows][kWgmmaDepth];
  std::int8_t exponent[kWgmmaRows][kWgmmaDepth];
  bool finite;

  /// `chunks` are the rows one after the other.
  void decode(const Chunk* chunks, bool is_e5m2);
};

/// B, columns padded with zeros to a multiple of 32.
struct DecodedB {
  int n = 0;
  int pitch = 0;
  std::vector<float> value;           ///< (k, pitch)
  std::vector<std::int8_t> exponent;  ///< (k, pitch)
  bool finite = true;

  /// `chunks` are the columns one after the other.
  void decode(const Chunk* chunks, int columns, bool is_e5m2);
};

/// c (16 x n, row-major) = a b [+ c].
void wgmma_multiply(const DecodedA& a, const DecodedB& b, bool accumulate,
                    fp8_sdpa::TensorCoreSums sums, float* c);

}  // namespace gpu::host

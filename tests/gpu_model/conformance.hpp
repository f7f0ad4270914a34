// The conformance kernels: each exercises one primitive of kernels/gpu, written once
// (conformance_kernels.cuh) and run on both backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8_sdpa/device.hpp"
#include "fp8_sdpa/status.hpp"

namespace conformance {

/// One per kernel. What each reads and writes is said where the kernel is.
enum class Primitive {
  kIndices,
  kSyncBlock,
  kSyncWarp,
  kNamedBarriers,
  kShuffle,
  kShuffleXor,
  kCpAsync,
  kCpAsyncZfill,
  kE4M3ToHalf,
  kE5M2ToHalf,
  kE4M3x4ToHalf4,
  kE5M2x4ToHalf4,
  kFloat2ToE4M3x2,
  kPrmt,
  kHalfToFloat,
  kHalf2ToFloat2,
  kFloatToHalf,
  kFloat2ToHalf2,
  kFloatToBFloat16,
  kExp2,
  kLog2,
  kMaxNan,
  kFma,
  kLdmatrix,
  kMmaHalf,
  kMmaFp8,
  kWmma,
  kPrint,
};

/// Reads a whole buffer, writes a whole buffer. For element-wise primitives `count` is the number
/// of elements; others have a fixed shape and ignore it.
struct Request {
  Primitive primitive;
  const std::vector<std::byte>& in;
  std::vector<std::byte>& out;  ///< of the right size
  int count = 0;
};

fp8_sdpa::Status run_on_host(const Request& request, const fp8_sdpa::ExecutorOptions& options);

/// Copies to the current device, runs, waits, copies back.
fp8_sdpa::Status run_on_device(const Request& request);

/// Why there is no device to compare with: no device code in this build, or no GPU. Empty if there
/// is one.
std::string why_no_device();

// Shapes that the kernels and the expectations share.

inline constexpr int kLanes = 32;

inline constexpr int kIndexThreads = 64;
inline constexpr unsigned kIndexGrid[3] = {3, 2, 4};
/// thread, lane, warp, block x y z, grid x y z
inline constexpr int kIndexFields = 9;

inline constexpr int kBarrierThreads = 256;
inline constexpr int kBarrierPhases = 8;

inline constexpr int kRingConsumers = 96;
inline constexpr int kRingTiles = 11;

inline constexpr int kShuffleRounds = 40;

inline constexpr int kCopyThreads = 64;
inline constexpr int kCopyTiles = 7;
inline constexpr int kCopyBytes = 16;
inline constexpr int kZfillSizes = kCopyBytes + 1;

/// wmma: A, B and C row-major, for every combination of layouts in memory.
inline constexpr int kMatrixDim = 16;
inline constexpr int kMatrixElements = kMatrixDim * kMatrixDim;
inline constexpr int kWmmaLayouts = 8;

/// ldmatrix: four 8 x 8 matrices of 16-bit elements, a row in 16 bytes.
inline constexpr int kLdmatrixMatrices = 4;
inline constexpr int kLdmatrixRows = 8;

/// mma: A (kMmaM x k), B (k x kMmaN), k = 16 halves or 32 FP8 codes.
inline constexpr int kMmaM = 16;
inline constexpr int kMmaN = 8;
inline constexpr int kMmaHalfK = 16;
inline constexpr int kMmaFp8K = 32;
/// Every pair of E4M3 and E5M2.
inline constexpr int kMmaFp8Pairs = 4;

}  // namespace conformance

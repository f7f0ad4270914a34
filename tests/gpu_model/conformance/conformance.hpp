// The conformance kernels: each exercises one primitive of kernels/gpu, written once
// (kernels.cuh) and run on both backends.
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
  kAnyLane,
  kAtomicAdd,
  kAtomicCas,
  kAtomicMax,
  kBlocksAtOnce,
  kWaitForWord,
  kWaitForWideWord,
  kEarlyStart,
  kCpAsync,
  kCpAsyncZfill,
  kE4M3ToHalf,
  kE5M2ToHalf,
  kE4M3x4ToHalf4,
  kE5M2x4ToHalf4,
  kFloat2ToE4M3x2,
  kFloat2ToE5M2x2,
  kHalf4ToE4M3x4,
  kPrmt,
  kHalfToFloat,
  kHalf2ToFloat2,
  kFloatToHalf,
  kFloat2ToHalf2,
  kFloat2ToHalf2Relu,
  kFloatToBFloat16,
  kFloat2ToBFloat162,
  kExp2,
  kLog2,
  kMaxNan,
  kFma,
  kDivide,
  kFmaHalf2,
  kLdmatrix,
  kMmaHalf,
  kMmaBFloat16,
  kMmaFp8,
  kWmma,
  kPrint,
  kStmatrix,
  kMBarrier,
  kMBarrierArriveIf,
  kTmaLoad,
  kBulkLoad,
  kGlobalStore,
  kWgmmaSizes,
  kWgmmaSwizzles,
  kWgmmaTypes,
  kWgmmaInt8,
  kWgmmaHalf,
  kWgmmaBFloat16,
  kElectOne,
  kSetmaxnreg,
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

/// Atomics: words of the output, one after the other. The launch zeroes the counter and the parts.
inline constexpr int kAtomicThreads = 64;
inline constexpr int kAtomicBlocks = 24;
inline constexpr int kAtomicWarps = kAtomicBlocks * kAtomicThreads / kLanes;
inline constexpr int kAtomicStep = 3;   ///< what each warp adds
inline constexpr int kAtomicParts = 8;  ///< apart from the counter
inline constexpr int kAtomicTurns = kAtomicParts + kLanes * kAtomicWarps;
inline constexpr int kAtomicSums = kAtomicTurns + kAtomicWarps;
inline constexpr int kWordWarps = 4;
inline constexpr int kWordParts = 8;  ///< apart from the counter
inline constexpr int kWordSums = kWordParts + kLanes * (kWordWarps - 1);
inline constexpr int kAtomicWords = kAtomicSums + kLanes;

/// Early start: what the first kernel writes, then what the second makes of it.
inline constexpr int kEarlyThreads = 64;
inline constexpr int kEarlyBlocks = 8;
inline constexpr int kEarlyWords = kEarlyBlocks * kEarlyThreads;

inline constexpr int kCopyThreads = 64;
inline constexpr int kCopyTiles = 7;
inline constexpr int kCopyBytes = 16;

/// wmma: A, B and C row-major, with B in memory so and column-major.
inline constexpr int kMatrixDim = 16;
inline constexpr int kMatrixElements = kMatrixDim * kMatrixDim;
inline constexpr int kWmmaLayouts = 2;

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

/// TMA: boxes of tensors that start at a buffer's start, rows padded to 16 bytes. Each config has a
/// slot of this many bytes for its box, and one for its tensor.
struct TmaConfig {
  int rank;
  int element_bytes;
  int sizes[4];
  int box[4];
  int at[4];
  int swizzle_bytes;  ///< 0: none; else also the bytes of a row of the box
};
inline constexpr TmaConfig kTmaConfigs[] = {
    {2, 1, {64, 40, 1, 1}, {64, 16, 1, 1}, {0, 8, 0, 0}, 0},
    {2, 1, {128, 40, 1, 1}, {128, 16, 1, 1}, {0, 32, 0, 0}, 128},  // past the last row
    {2, 1, {96, 24, 1, 1}, {64, 24, 1, 1}, {64, 0, 0, 0}, 64},     // past a row's end
    {2, 1, {48, 9, 1, 1}, {32, 8, 1, 1}, {-16, -3, 0, 0}, 32},     // before the first ones
    {3, 1, {128, 6, 3, 1}, {128, 4, 2, 1}, {0, 3, 2, 0}, 128},
    {4, 1, {64, 5, 3, 2}, {64, 8, 1, 2}, {0, -1, 1, 0}, 64},
    {2, 2, {40, 20, 1, 1}, {32, 8, 1, 1}, {16, 4, 0, 0}, 64},
    {3, 4, {20, 6, 2, 1}, {16, 4, 2, 1}, {8, -1, 0, 0}, 0},
};
inline constexpr int kTmaCount = static_cast<int>(sizeof(kTmaConfigs) / sizeof(kTmaConfigs[0]));
inline constexpr int kTmaBoxSlot = 2048;
inline constexpr int kTmaTensorSlot = 5120;
inline constexpr int kTmaThreads = 64;

/// bulk_load: copies between places that are multiples of 16 bytes, and not of 128.
struct BulkCopy {
  int from;
  int to;
  int bytes;
};
inline constexpr BulkCopy kBulkCopies[] = {
    {16, 16, 16}, {48, 48, 272}, {4080, 336, 4096}, {352, 4448, 1040}, {8176, 5504, 16}};
inline constexpr int kBulkCount = static_cast<int>(sizeof(kBulkCopies) / sizeof(kBulkCopies[0]));
inline constexpr int kBulkBytes = [] {
  int bytes = 0;
  for (const BulkCopy& copy : kBulkCopies) bytes += copy.bytes;
  return bytes;
}();
inline constexpr int kBulkIn = 8192;
inline constexpr int kBulkOut = 5632;
inline constexpr int kBulkThreads = 64;
inline constexpr int kBulkRounds = 3;

/// store_global_16: a chunk for each thread in each round.
inline constexpr int kStoreThreads = 96;
inline constexpr int kStoreBytes = 16 * kStoreThreads;
inline constexpr int kStoreRounds = 3;

/// mbarrier: a ring of two buffers between a warp and three.
inline constexpr int kMBarrierConsumers = 96;
inline constexpr int kMBarrierTiles = 11;

/// mbarrier_arrive_if: one thread in so many counts, another one in each round.
inline constexpr int kArriveIfThreads = 128;
inline constexpr int kArriveIfEvery = 4;
inline constexpr int kArriveIfCount = kArriveIfThreads / kArriveIfEvery;
inline constexpr int kArriveIfRounds = 6;

/// wgmma: A (64 x kWgmmaK) and B as (n, kWgmmaK), of which a kernel takes the first columns.
inline constexpr int kWgmmaM = 64;
inline constexpr int kWgmmaMaxN = 256;
inline constexpr int kWgmmaK = 128;
inline constexpr int kWgmmaStep = 32;
inline constexpr int kWgmmaSizesN[] = {8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256};
inline constexpr int kWgmmaSwizzlesN = 64;
/// Columns along k with each swizzle: none, 32, 64 and 128 bytes.
inline constexpr int kWgmmaSwizzlesK[] = {64, 32, 64, 128};
inline constexpr int kWgmmaTypesN = 40;
/// Of 16-bit elements: A (64 x kWgmma16BitK) and B (kWgmma16BitK, kWgmmaMaxN), in as many bytes.
inline constexpr int kWgmma16BitK = kWgmmaK / 2;
inline constexpr int kWgmma16BitStep = kWgmmaStep / 2;
/// What sums of integers begin with: 1.5 * 2^23, so that they are mantissas of floats.
inline constexpr std::uint32_t kWgmmaInt8Start = 0x4b400000;

inline constexpr int kElectThreads = 128;
inline constexpr int kElectRounds = 5;

inline constexpr int kSetmaxnregThreads = 384;

}  // namespace conformance

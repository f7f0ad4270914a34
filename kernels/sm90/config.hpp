// The shape of an sm90 kernel: what differs between the rows of tile_shapes.def.
#pragma once

#include <cstdint>

namespace fp8_sdpa::sm90 {

inline constexpr int kMinSmVersion = 90;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupRows = 64;  ///< of one wgmma

/// How a consumer warpgroup hides the tensor cores behind its softmax.
enum class Pipeline : std::uint8_t {
  kSerial,   ///< not at all: other warpgroups fill the gaps
  kOverlap,  ///< intra-warpgroup overlap, with int8(): P V of the tile before runs under the
             ///< softmax of this one
};

/// Who transposes V, which P V reads with its keys contiguous.
enum class Transpose : std::uint8_t {
  kEveryBlock,  ///< each block what it wants, on the way to its shared memory: transpose_values.cuh
  kKernelBefore,  ///< a kernel of its own before this one, once, into the workspace:
                  ///< pre_transpose.cuh
  kOnceByBlocks,  ///< the blocks, each tile once, into the workspace, while the first work tiles
                  ///< are under way: shared_transpose.cuh
};

/// What is multiplied.
enum class Formats : std::uint8_t {
  kE4M3,          ///< Q, K, P and V in E4M3
  kInt8Half,      ///< Q and K as signed bytes, P and V as halves
  kInt8BFloat16,  ///< the same, but P and V in bfloat16
};

struct Config {
  int row_groups = 2;  ///< consumer warpgroups on different query rows, 64 each
  int kv_splits = 1;   ///< warpgroups that share rows and take every kv_splits-th KV tile
  int tile_n = 128;    ///< keys of a KV tile: a multiple of 32
  int stages = 2;      ///< KV tiles in flight
  Pipeline pipeline = Pipeline::kSerial;
  int pv_columns = 0;  ///< columns of O that P V does at once; 0: all
  /// Row groups ping-pong: one warp a scheduler keeps the MUFU busy with exponentials, and the
  /// others multiply meanwhile.
  bool ping_pong = false;
  /// With ping_pong, the exponentials of a lane that a warp knows (their sum; with mma_row_sums, a
  /// multiple of 8, their codes) before it signals the next warp. By then it has issued some 8
  /// more: the next warp waits until two are at it.
  int exps_in_hand = 24;
  /// A loop of its own for masked tiles, where registers allow it.
  bool masks_apart = false;
  bool integer_max = false;  ///< maxima of scores as integers, three at a time
  /// Row sums of P by MMA: V^T has a row of ones. They are of rounded weights, as O is, and so is
  /// the LSE (LseSum::kDenominator). A tile's sum is short (13 fractional bits), as O's are; tiles
  /// are added in fp32. reference/judge/budget.hpp says what that may do to O and to the LSE.
  bool mma_row_sums = false;
  /// Weights that are made without the MUFU, by a piecewise-linear exp2 (softmax.cuh), with
  /// mma_row_sums: bit i is for the i-th word of four that a lane packs.
  std::uint16_t linear_exp2 = 0;
  /// Each of the three warps that transpose V has tiles of its own: half the instructions at
  /// head_dim 64, where a warp has little to do of a tile.
  bool warp_per_tile = false;
  Transpose transpose = Transpose::kEveryBlock;
  bool two_terms = false;  ///< P is the sum of two E4M3 terms; there is one KV tile at most
  /// Lengths, and where rows lie, are read when the kernel runs: work/ragged.cuh.
  bool ragged = false;
  /// Of a problem that is not ragged too, query heads of a KV head share tiles (packs()).
  bool packed_gqa = false;
  /// Descales may be of blocks (Granularity::kBlock): a KV tile is a block of keys.
  bool block_scales = false;
  Formats formats = Formats::kE4M3;

  constexpr int consumers() const { return row_groups * kv_splits; }
  constexpr int tile_m() const { return row_groups * kWarpgroupRows; }
  constexpr int threads() const { return (1 + consumers()) * kWarpgroupThreads; }
  /// Whether the query heads of a KV head may share a tile's rows (packed GQA): work/packing.hpp.
  constexpr bool packs() const { return ragged || packed_gqa; }
  /// Whether V^T lies in the workspace.
  constexpr bool v_in_workspace() const { return transpose != Transpose::kEveryBlock; }
  constexpr bool transposes_once() const { return transpose == Transpose::kOnceByBlocks; }
  /// Whether m leaves the loop over keys in units of log2(e), and O of a split with V's descale.
  constexpr bool scaled_max() const { return block_scales || int8(); }
  /// Whether Q and K are signed bytes. V is multiplied as it lies.
  constexpr bool int8() const { return formats != Formats::kE4M3; }
};

/// Registers a thread of a consumer and of the producer, out of the 65,536 of a multiprocessor.
struct RegisterShares {
  int consumer, producer;
};
constexpr RegisterShares register_shares(const Config& config) {
  switch (config.consumers()) {
    case 2:
      return config.transpose == Transpose::kKernelBefore || config.int8()
                 ? RegisterShares{240, 24}
                 : RegisterShares{232, 40};
    case 3: return {160, 32};
    default: return {112, 32};
  }
}

/// With Transpose::kOnceByBlocks, dims of a tile of V that are transposed at once: a unit.
constexpr int unit_dims(int head_dim) { return head_dim < 128 ? head_dim : 128; }

}  // namespace fp8_sdpa::sm90

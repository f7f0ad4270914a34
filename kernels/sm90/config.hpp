// Tags and tile shapes of the sm90 family.
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
  kOverlap,  ///< P V of the tile before runs under the softmax of this one
};

/// The shape of one kernel: what differs between variants and head dims.
struct Config {
  int row_groups = 2;  ///< consumer warpgroups on different query rows, 64 each
  int key_groups = 1;  ///< warpgroups that share rows and take every key_groups-th KV tile
  /// Blocks of a cluster that share rows and take every cluster_blocks-th KV tile: 1 or 2.
  int cluster_blocks = 1;
  int tile_n = 128;  ///< keys of a KV tile: a multiple of 32
  int stages = 2;    ///< KV tiles in flight
  Pipeline pipeline = Pipeline::kSerial;
  int pv_columns = 0;  ///< columns of O that P V does at once; 0: all
  /// Row groups take turns at exponentials: one warp a scheduler keeps the MUFU busy, and those
  /// without a turn multiply meanwhile.
  bool exp_turns = false;
  /// Exponentials of a lane that a warp knows (their sum; with ones_column, a multiple of 8, their
  /// codes) before it passes its turn on. By then it has issued some 8 more: the next warp waits
  /// until two are at it.
  int in_turn = 24;
  /// A loop of its own for masked tiles, where registers allow it.
  bool masks_apart = false;
  bool integer_max = false;  ///< maxima of scores as integers, three at a time
  /// Row sums of P from the tensor cores: V has a column of ones. They are of rounded weights, as
  /// O is: good for O, but an LSE from a few weights would be off by up to 2^-4. A tile's sum is
  /// short (13 fractional bits), as O's are; tiles are added in fp32. reference/judge/budget.hpp
  /// says what that may do to O.
  bool ones_column = false;
  /// Weights that are made without the MUFU, by chords (softmax.cuh), with ones_column: bit i is
  /// for the i-th word of four that a lane packs.
  std::uint16_t chords = 0;
  /// Each of the three warps that transpose V has tiles of its own: half the instructions at
  /// head_dim 64, where a warp has little to do of a tile.
  bool warp_per_tile = false;
  /// V is turned into tiles of V^T by a kernel of its own before this one, once, and not by every
  /// block that wants them: prepare_values.cuh. It takes a workspace, and memory's time for V.
  bool prepared_values = false;
  /// With prepared_values: no kernel before, but this one's blocks turn V, each tile once, while
  /// the first items are under way: turn_once.cuh.
  bool once = false;
  bool two_terms = false;  ///< P is the sum of two E4M3 terms; a warpgroup has one KV tile at most

  constexpr int consumers() const { return row_groups * key_groups; }
  /// Parts that the KV tiles of a row are dealt to.
  constexpr int sharers() const { return key_groups * cluster_blocks; }
  constexpr int tile_m() const { return row_groups * kWarpgroupRows; }
  constexpr int threads() const { return (1 + consumers()) * kWarpgroupThreads; }
};

/// Up to this many keys, and one KV tile a warpgroup, P has two E4M3 terms. Rounding P to one, in
/// steps of 2^-3 of its binade, moves an output by 0.015 / sqrt(keys) rms for uniform(-1, 1)
/// values; the largest of some thousand outputs, 4 to 5 times that, must stay below 0.01.
inline constexpr std::int64_t kMaxKeysOfTwoTerms = 128;

/// Whether `seq_kv` keys are few for kernels of this shape.
constexpr bool few_keys(const Config& config, std::int64_t seq_kv) {
  return seq_kv <= kMaxKeysOfTwoTerms && seq_kv <= config.tile_n * config.sharers();
}

/// The same tiles and warpgroups for few keys: no pipeline, no turns, O itself accumulates.
constexpr Config with_two_terms(const Config& config) {
  return {.row_groups = config.row_groups,
          .key_groups = config.key_groups,
          .cluster_blocks = config.cluster_blocks,
          .tile_n = config.tile_n,
          .stages = config.stages,
          .prepared_values = config.prepared_values,
          .once = config.once,
          .two_terms = true};
}

/// Registers a thread of a consumer and of the producer, out of the 65,536 of a multiprocessor.
struct RegisterShares {
  int consumer, producer;
};
constexpr RegisterShares register_shares(const Config& config) {
  switch (config.consumers()) {
    case 2:
      return config.prepared_values && !config.once ? RegisterShares{240, 24}
                                                    : RegisterShares{232, 40};
    case 3: return {160, 32};
    default: return {112, 32};
  }
}

/// Named as the variants: the name is in the kernel's mangled symbol, where the compiler's resource
/// report and the profiler show it. config(head_dim) is the shape at a head dim of serves().
namespace tag {

/// Independent warpgroups: what one leaves idle, others use.
struct sm90_serial {
  static constexpr const char* kName = "sm90_serial";
  static constexpr bool serves(int head_dim) { return head_dim == 64 || head_dim == 256; }
  static constexpr Config config(int head_dim) {
    if (head_dim == 64) {
      return {.row_groups = 4,
              .tile_n = 96,
              .stages = 4,
              .masks_apart = true,
              .integer_max = true,
              .warp_per_tile = true};
    }
    return {.row_groups = 2, .tile_n = 128, .stages = 2, .pv_columns = 64, .integer_max = true};
  }
};

/// The same with the fewest instructions a score: row sums of rounded weights from the tensor cores
/// (so no LSE), maxima as integers.
struct sm90_serial_ones {
  static constexpr const char* kName = "sm90_serial_ones";
  static constexpr bool serves(int head_dim) { return head_dim == 64 || head_dim == 256; }
  static constexpr Config config(int head_dim) {
    if (head_dim == 64) {
      return {.row_groups = 4,
              .tile_n = 128,
              .stages = 4,
              .masks_apart = true,
              .integer_max = true,
              .ones_column = true,
              .chords = 0xF8BD,
              .warp_per_tile = true};
    }
    return {.row_groups = 2,
            .tile_n = 128,
            .stages = 2,
            .pv_columns = 64,
            .integer_max = true,
            .ones_column = true,
            .chords = 0x6666};
  }
};

/// sm90_serial_ones with V turned once, before: for long sequences. Other words by chords pay here
/// (version_7/step_3 of the journal's evidence).
struct sm90_prepared {
  static constexpr const char* kName = "sm90_prepared";
  static constexpr bool serves(int head_dim) { return sm90_serial_ones::serves(head_dim); }
  static constexpr Config config(int head_dim) {
    Config config = sm90_serial_ones::config(head_dim);
    config.prepared_values = true;
    config.warp_per_tile = false;
    config.chords = head_dim == 64 ? 0xF8BD : 0x0C0C;
    return config;
  }
};

/// sm90_prepared without a kernel before: whoever comes first turns a tile of V, for all.
struct sm90_once {
  static constexpr const char* kName = "sm90_once";
  static constexpr bool serves(int head_dim) { return sm90_prepared::serves(head_dim); }
  static constexpr Config config(int head_dim) {
    Config config = sm90_prepared::config(head_dim);
    config.once = true;
    // The producer of four consumer warpgroups has too few registers.
    if (head_dim == 64) config.row_groups = 2;
    return config;
  }
};

/// Warpgroups that take turns at exponentials.
struct sm90_turns {
  static constexpr const char* kName = "sm90_turns";
  static constexpr bool serves(int head_dim) {
    return head_dim == 64 || head_dim == 128 || head_dim == 256;
  }
  static constexpr Config config(int head_dim) {
    if (head_dim == 64) return {.row_groups = 4, .tile_n = 64, .stages = 4, .exp_turns = true};
    if (head_dim == 256) {
      return {.row_groups = 2,
              .tile_n = 128,
              .stages = 2,
              .pv_columns = 128,
              .exp_turns = true,
              .in_turn = 10,
              .integer_max = true};
    }
    return {.row_groups = 3,
            .tile_n = 128,
            .stages = 2,
            .exp_turns = true,
            .in_turn = 20,
            .integer_max = true};
  }
};

/// The same with row sums of rounded weights from the tensor cores (so no LSE).
struct sm90_turns_ones {
  static constexpr const char* kName = "sm90_turns_ones";
  static constexpr bool serves(int head_dim) { return head_dim == 64 || head_dim == 128; }
  static constexpr Config config(int head_dim) {
    if (head_dim == 64) {
      return {.row_groups = 4,
              .tile_n = 96,
              .stages = 8,
              .exp_turns = true,
              .in_turn = 8,
              .masks_apart = true,
              .integer_max = true,
              .ones_column = true};
    }
    return {.row_groups = 3,
            .tile_n = 128,
            .stages = 2,
            .exp_turns = true,
            .in_turn = 24,
            .integer_max = true,
            .ones_column = true,
            .chords = 0x5A5A};
  }
};

/// FlashAttention-3's structure with wgmma on FP8, two-level accumulation.
struct sm90_overlap {
  static constexpr const char* kName = "sm90_overlap";
  static constexpr bool serves(int head_dim) { return head_dim == 64 || head_dim == 128; }
  static constexpr Config config(int head_dim) {
    if (head_dim == 64) {
      return {.row_groups = 3, .tile_n = 96, .stages = 4, .pipeline = Pipeline::kOverlap};
    }
    return {.row_groups = 2, .tile_n = 128, .stages = 2, .pipeline = Pipeline::kOverlap};
  }
};

/// Keys split over the warpgroups of a block: for problems with few query rows.
struct sm90_split {
  static constexpr const char* kName = "sm90_split";
  static constexpr bool serves(int head_dim) { return head_dim == 64 || head_dim == 128; }
  static constexpr Config config(int head_dim) {
    if (head_dim == 64) {
      return {.row_groups = 1, .key_groups = 4, .tile_n = 64, .stages = 8, .warp_per_tile = true};
    }
    return {.row_groups = 1, .key_groups = 2, .tile_n = 128, .stages = 2};
  }
};

/// The same for about as many blocks as multiprocessors: 128 rows, keys split in two.
struct sm90_split2 {
  static constexpr const char* kName = "sm90_split2";
  static constexpr bool serves(int head_dim) { return head_dim == 64; }
  static constexpr Config config(int /*head_dim*/) {
    return {.row_groups = 2,
            .key_groups = 2,
            .tile_n = 96,
            .stages = 8,
            .integer_max = true,
            .warp_per_tile = true};
  }
};

/// The same with row sums of rounded weights from the tensor cores, as in sm90_serial_ones.
struct sm90_split2_ones {
  static constexpr const char* kName = "sm90_split2_ones";
  static constexpr bool serves(int head_dim) { return head_dim == 64; }
  static constexpr Config config(int /*head_dim*/) {
    return {.row_groups = 2,
            .key_groups = 2,
            .tile_n = 128,
            .stages = 4,
            .integer_max = true,
            .ones_column = true,
            .chords = 0xB5F8,
            .warp_per_tile = true};
  }
};

/// Two blocks of a cluster to the same 256 rows, each with every other KV tile: four warpgroups and
/// a column of ones, as in sm90_serial_ones, and twice as many blocks as there are tiles of rows.
struct sm90_cluster {
  static constexpr const char* kName = "sm90_cluster";
  static constexpr bool serves(int head_dim) { return head_dim == 64; }
  static constexpr Config config(int /*head_dim*/) {
    return {.row_groups = 4,
            .cluster_blocks = 2,
            .tile_n = 96,
            .stages = 4,
            .integer_max = true,
            .ones_column = true};
  }
};

}  // namespace tag

/// Whether the kernels of a tag, for all head dims alike, have their V turned before: in a
/// workspace.
template <class Tag>
constexpr bool prepares_values() {
  for (const int head_dim : {64, 128, 256}) {
    if (Tag::serves(head_dim)) return Tag::config(head_dim).prepared_values;
  }
  return false;
}

}  // namespace fp8_sdpa::sm90

// The ring of K/V steps of one key group: where the rows of a step are, and their copies to shared
// memory.
//
// A cache in pages (vLLM: Kwon et al., arXiv 2309.06180, section 4.2) is read row by row: lane i of
// a warp looks up the page of the step's key i, and the lanes that copy that row ask lane i. What
// the table says is looked at one step after it was asked for, and the first steps ask together:
// in splits of 13 steps an eighth of the time went into waiting for those in turn.
#pragma once

#include <cstdint>

#include "attention/query_codes.hpp"
#include "attention/shared_tile.hpp"
#include "decode/params.hpp"

namespace fp8_sdpa::decode {

template <class S>
using CodeTile =
    attention::SharedTile<std::uint8_t, S::kWarpKeys, S::kTileDim, attention::Layout::kSwizzled>;

/// One step's keys of one key group.
template <class S>
struct KvStage {
  CodeTile<S> k;
  CodeTile<S> v;
};
template <class S>
using KvStages = KvStage<S>[S::kStages][S::kKeyGroups];

/// barrier | who | means:
/// 1 + key_group (of several warps; else the warp's own) | its kRowGroups warps | all copied their
/// part of the step, and all have finished the step before, whose stage may be overwritten.
template <class S>
class KvRing {
 public:
  GPU_FN KvRing(const Params& p, const Work& work, KvStages<S>& stages, int row_group,
                int key_group)
      : p_(p),
        work_(work),
        stages_(stages),
        row_group_(row_group),
        key_group_(key_group),
        keys_(work.end - work.first) {
    Place places[S::kStages - 1];
#pragma unroll
    for (int step = 0; step < S::kStages - 1; ++step) places[step] = look_up(step);
    place_ = look_up(S::kStages - 1);
#pragma unroll
    for (int step = 0; step < S::kStages - 1; ++step) copy(step, step, places[step]);
  }

  /// Steps of the block. Every key group waits for each, also one that has no key in the last.
  GPU_FN int steps() const { return keys_ > 0 ? (keys_ + S::kTileN - 1) / S::kTileN : 0; }
  /// Of the step's keys of this key group the first, counted in the sequence.
  GPU_FN int first_key(int step) const { return work_.first + first_in_split(step); }
  GPU_FN bool has_keys(int step) const { return first_in_split(step) < keys_; }

  /// Waits for a step's K and V, and starts the copy of a later one. Steps come in order.
  GPU_FN const KvStage<S>& wait(int step) {
    gpu::cp_async_wait<S::kStages - 2>();
    if constexpr (S::kRowGroups == 1) {
      gpu::sync_warp();
    } else {
      gpu::named_barrier_sync(1 + key_group_, S::kRowGroups * gpu::kWarpSize);
    }
    const int stage = stage_;
    copy(step + S::kStages - 1, stage == 0 ? S::kStages - 1 : stage - 1, place_);
    place_ = look_up(step + S::kStages);
    stage_ = stage == S::kStages - 1 ? 0 : stage + 1;
    return stages_[stage][key_group_];
  }

  /// Whether a page that this lane looked up does not exist.
  GPU_FN bool bad_page() const { return bad_page_; }

 private:
  static constexpr int kChunksPerRow = S::kTileDim / attention::kChunk;
  static constexpr int kRowsPerPass = gpu::kWarpSize / kChunksPerRow;
  static constexpr std::uint32_t kNoRow = ~0U;

  /// Where a key's row is, before anybody looked whether there is such a page: in K and V, seq of
  /// batch. Without pages, the sequence's own.
  struct Place {
    static constexpr int kNowhere = -1;
    int batch;
    int seq;
  };

  GPU_FN int first_in_split(int step) const { return step * S::kTileN + key_group_ * S::kWarpKeys; }

  GPU_FN int key_of_lane(int step) const {
    return first_in_split(step) + gpu::lane_idx() % S::kWarpKeys;
  }

  /// Of key `lane` of a step. Past the split's end nothing is looked at.
  GPU_FN Place look_up(int step) const {
    if (key_of_lane(step) >= keys_) return {Place::kNowhere, 0};
    const int key = work_.first + key_of_lane(step);
    if (p_.block_table == nullptr) return {work_.batch, work_.sequence.first_key + key};
    const int nth = attention::quotient(key, p_.page_size);
    return {p_.block_table[static_cast<std::int64_t>(work_.batch) * p_.max_pages + nth],
            key - nth * p_.page_size.value};
  }

  /// Of a row, the lane copies 16 codes from here on.
  GPU_FN static int col_of_lane() { return gpu::lane_idx() % kChunksPerRow * attention::kChunk; }

  /// Behind where a row of the tile's first head begins, what the lane copies of it.
  GPU_FN static std::uint32_t chunks_of_lane(const RowChunks& strides) {
    const auto nth_head = static_cast<std::uint32_t>(col_of_lane() / S::kHeadDim);
    const auto code = static_cast<std::uint32_t>(col_of_lane() % S::kHeadDim);
    return nth_head * strides.head + code / attention::kChunk;
  }

  /// Where a row of the tile's first head begins.
  GPU_FN std::uint32_t chunks_before(const RowChunks& strides, const Place& place) const {
    return static_cast<std::uint32_t>(place.batch) * strides.batch +
           static_cast<std::uint32_t>(work_.kv_head) * strides.head +
           static_cast<std::uint32_t>(place.seq) * strides.seq;
  }

  GPU_FN static const std::uint8_t* codes_at(const std::uint8_t* tensor, std::uint32_t chunks) {
    return tensor + std::int64_t{chunks} * attention::kChunk;
  }

  /// One cp.async group, empty past the last step. Rows that do not exist become zero, and nothing
  /// is read of them. Each lane says where its key's rows begin: once a step, not once a copy.
  GPU_FN void copy(int step, int stage, const Place& asked) {
    if (first_in_split(step) < keys_) {
      const bool is_there = asked.batch >= 0 && asked.batch < p_.pages;
      bad_page_ = bad_page_ || (!is_there && key_of_lane(step) < keys_);
      const std::uint32_t k_row = is_there ? chunks_before(p_.k_rows, asked) : kNoRow;
      const std::uint32_t v_row = is_there ? chunks_before(p_.v_rows, asked) : kNoRow;
      const std::uint32_t k_of_lane = chunks_of_lane(p_.k_rows);
      const std::uint32_t v_of_lane = chunks_of_lane(p_.v_rows);
      KvStage<S>& to = stages_[stage][key_group_];
#pragma unroll(S::kRowsAtOnce)
      for (int pass = row_group_; pass < S::kWarpKeys / kRowsPerPass; pass += S::kRowGroups) {
        const int row = pass * kRowsPerPass + gpu::lane_idx() / kChunksPerRow;
        const std::uint32_t k_from = gpu::shfl(k_row, row);
        const std::uint32_t v_from = gpu::shfl(v_row, row);
        const bool there = k_from != kNoRow;
        gpu::cp_async_16_zfill(to.k.at(row, col_of_lane()), codes_at(p_.k, k_from + k_of_lane),
                               there);
        gpu::cp_async_16_zfill(to.v.at(row, col_of_lane()), codes_at(p_.v, v_from + v_of_lane),
                               there);
      }
    }
    gpu::cp_async_commit();
  }

  const Params& p_;
  const Work& work_;
  KvStages<S>& stages_;
  int row_group_, key_group_;
  int keys_;       ///< of the split
  int stage_ = 0;  ///< of the step that is waited for next
  Place place_;    ///< of the step that is copied next
  bool bad_page_ = false;
};

}  // namespace fp8_sdpa::decode

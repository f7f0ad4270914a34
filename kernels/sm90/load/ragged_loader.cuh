// The loader of a ragged batch: a warp that finds work tiles, tells the consumers of them, and
// loads rows of packed or padded sequences, and keys in pages. A tile of keys is loaded by boxes,
// of which each lies in one page, and each is a lane's.
#pragma once

#include "sm90/load/producer.cuh"

namespace fp8_sdpa::sm90 {

template <class T>
struct RaggedLoader {
  using State = RaggedState<T>;
  const Params& p;
  Shared<T>& sm;
  int lane;
  unsigned tiles_before = 0;                           ///< of work tiles that have been loaded
  RingPlace<Shared<T>::kStagingBuffers> staging = {};  ///< of the next tile of V

  GPU_FN void run() {
    if (lane == 0) sm.ragged.work_tile_start = 0;
    tell(0, 0, 0);
    for (unsigned nth = 0;; ++nth) {
      const int tiles = same_in_all(told_as(nth).work.tiles);
      if (tiles < 0) break;
      if (tiles > 0) {
        load(nth);
      } else {
        tell(nth + 1, told_as(nth).rank, told_as(nth).with_keys);
      }
    }
    stop_transposers();
  }

 private:
  /// Where a box of K or V comes from.
  struct Box {
    int row, batch;  ///< batch: or the page; negative: from nowhere
  };

  GPU_FN typename State::Told& told_as(unsigned nth) const {
    return sm.ragged.told[slot_of<State::kTold>(nth)];
  }
  /// Of the block's work tile `nth`; what is told of it follows from the one before.
  GPU_FN void tell(unsigned nth, int rank, unsigned with_keys) {
    const int slot = slot_of<State::kTold>(nth);
    gpu::mbarrier_wait(sm.ragged.work_empty[slot], empty_parity<State::kTold>(nth));
    const int work_tile =
        work_tile_of_round(static_cast<int>(nth), static_cast<int>(gpu::block_idx().x),
                           static_cast<int>(gpu::grid_dim().x));
    Work work{};
    work.tiles = -1;
    if (work_tile < same_in_all(p.ragged.order[p.ragged.batch].first_work_tile)) {
      rank = find_rank(p.ragged, work_tile, same_in_all(rank));
      work = locate_ragged<T>(p, work_tile, rank);
    }
    if (lane == 0) {
      told_as(nth) = {work, with_keys, rank, false};
      gpu::mbarrier_arrive(sm.ragged.work_full[slot]);
    }
    gpu::sync_warp();
  }

  /// The next work tile is told of when as much is under way as the rings hold.
  GPU_FN void load(unsigned nth) {
    load_queries(nth);
    for (int tile = same_in_all(told_as(nth).work.last_tile); tile >= 0; --tile, ++tiles_before) {
      const Box box = box_of(nth, tile);
      const int boxes = count_boxes(nth, tile, box);
      const int slot = slot_of<T::kStages>(tiles_before);
      // V first: it is transposed while K is on its way.
      gpu::mbarrier_wait(sm.staging_empty[staging.slot], staging.full_parity ^ 1);
      if (lane == 0) sm.ragged.staged_keys[staging.slot] = keys_left(nth, tile);
      load_boxes(sm.staging[staging.slot], p.v, p.v_steps, sm.staging_full[staging.slot], nth, box,
                 boxes);
      staging.next();
      gpu::mbarrier_wait(sm.key_empty[slot], empty_parity<T::kStages>(tiles_before));
      load_boxes(sm.keys[slot], p.k, p.k_steps, sm.key_full[slot], nth, box, boxes);
      const int last = same_in_all(told_as(nth).work.last_tile);
      if (tile == (last > 0 ? last - 1 : 0)) {
        tell(nth + 1, told_as(nth).rank, told_as(nth).with_keys + 1);
      }
    }
  }
  /// Rows of a work tile, query by query: those of all heads that share it.
  GPU_FN void load_queries(unsigned nth) {
    wait_for_queries(sm, T::kQueryStages == 1 ? tiles_before : sm.ragged.work_tile_start,
                     tiles_before);
    gpu::sync_warp();
    if (lane != 0) return;
    sm.ragged.work_tile_start = tiles_before;
    using Queries = typename Shared<T>::Queries;
    const Work& work = told_as(nth).work;
    const int slot = slot_of<T::kQueryStages>(told_as(nth).with_keys);
    gpu::mbarrier_arrive_expect_tx(sm.query_full[slot], sizeof(Queries));
    load_packed(sm.queries[slot], p, sm.query_full[slot], work, work.sequence.first_query);
  }
  /// Keys that the sequence has from tile `tile` on.
  GPU_FN int keys_left(unsigned nth, int tile) const {
    return told_as(nth).work.sequence.keys - tile * T::kTileN;
  }
  GPU_FN bool is_asked_for(unsigned nth, int tile) const {
    const int key = lane * p.ragged.box_keys;
    return key < T::kTileN && key < keys_left(nth, tile);
  }
  /// This lane's of a tile; from nowhere too behind the sequence's last key.
  GPU_FN Box box_of(unsigned nth, int tile) const {
    const RaggedParams& ragged = p.ragged;
    if (!is_asked_for(nth, tile)) return {0, -1};
    const Work& work = told_as(nth).work;
    const int key = tile * T::kTileN + lane * ragged.box_keys;
    if (ragged.block_table == nullptr) {
      const bool packed = ragged.sequences.cu_seqlens_kv != nullptr;
      return {work.sequence.first_key + key, packed ? 0 : work.batch};
    }
    const int entry = attention::quotient(key, ragged.page_size);
    const int page =
        ragged.block_table[static_cast<std::int64_t>(work.batch) * ragged.max_pages + entry];
    return {key - entry * ragged.page_size.value, page < ragged.pages ? page : -1};
  }
  /// Boxes of all lanes that come from somewhere. Tells of those that should.
  GPU_FN int count_boxes(unsigned nth, int tile, const Box& box) const {
    constexpr int kAsked = 1 << 16;
    int both = (is_asked_for(nth, tile) ? kAsked : 0) + (box.batch >= 0 ? 1 : 0);
#pragma unroll
    for (int lanes = 1; lanes < gpu::kWarpSize; lanes *= 2) both += gpu::shfl_xor(both, lanes);
    const int boxes = both % kAsked;
    if (boxes < both / kAsked && lane == 0) {
      told_as(nth).bad_page = true;
      if (p.ragged.fault != nullptr) gpu::atomic_max_relaxed(p.ragged.fault, 1);
    }
    return boxes;
  }
  template <class TileType>
  GPU_FN void load_boxes(TileType& to, const gpu::TensorMap& map, const MapSteps& steps,
                         gpu::MBarrier& full, unsigned nth, const Box& box, int boxes) const {
    const int keys = p.ragged.box_keys;
    if (lane == 0) gpu::mbarrier_arrive_expect_tx(full, boxes * keys * T::kHeadDim);
    gpu::sync_warp();
    if (box.batch < 0) return;
#pragma unroll
    for (int i = 0; i < TileType::kPanels; ++i) {
      gpu::tma_load_4d(to.bytes[i] + lane * keys * TileType::kPanelBytes, map, full,
                       i * TileType::kPanelBytes, box.row, steps.head * told_as(nth).work.kv_head,
                       steps.batch * box.batch);
    }
  }
  /// In place of a tile, word that there is no other.
  GPU_FN void stop_transposers() {
    constexpr int kWaiting = T::kConfig.warp_per_tile ? T::kTransposers : 1;
    for (int i = 0; i < kWaiting; ++i, staging.next()) {
      gpu::mbarrier_wait(sm.staging_empty[staging.slot], staging.full_parity ^ 1);
      if (lane != 0) continue;
      sm.no_tile[staging.slot] = true;
      gpu::mbarrier_arrive(sm.staging_full[staging.slot]);
    }
  }
};

}  // namespace fp8_sdpa::sm90

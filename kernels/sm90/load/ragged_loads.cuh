// Tiles of a ragged batch by TMA: rows of packed or padded sequences, and keys in pages. A tile of
// keys is loaded by boxes, of which each lies in one page.
#pragma once

#include "sm90/load/loads.cuh"

namespace fp8_sdpa::sm90 {

template <class T, bool = T::kRagged>
struct RaggedLoads {
  const Params& p;
  Shared<T>& sm;
  unsigned work_tile = 0;  ///< of this block's, with keys

  GPU_FN void begin(unsigned nth) {
    work_tile = nth;
    sm.ragged.bad_page[slot_of<RaggedState<T>::kWorkTiles>(nth)] = false;
  }
  /// Rows of a work tile, query by query: those of all heads that share it.
  GPU_FN void load_queries(typename Shared<T>::Queries& to, gpu::MBarrier& full,
                           const Work& work) const {
    using Queries = typename Shared<T>::Queries;
    const int query = work.sequence.first_query + query_of_row(p, work.first_row);
    gpu::mbarrier_arrive_expect_tx(full, sizeof(to));
#pragma unroll
    for (int i = 0; i < Queries::kPanels; ++i) {
      gpu::tma_load_4d(to.bytes[i], p.q, full, i * Queries::kPanelBytes, p.q_steps.head * work.head,
                       query, p.q_steps.batch * work.batch);
    }
  }
  /// Of K or V. Boxes behind the sequence's last key, and those of pages that do not exist, are
  /// not loaded.
  template <class TileType>
  GPU_FN void load_tile(TileType& to, const gpu::TensorMap& map, const MapSteps& steps,
                        gpu::MBarrier& full, const Work& work, int tile) {
    const int box = p.ragged.box_keys;
    const int first = tile * T::kTileN;
    const int left = work.sequence.keys - first;
    const int keys = left < T::kTileN ? left : T::kTileN;
    int loaded = 0;
    for (int key = 0; key < keys; key += box) {
      if (exists(work, first + key)) loaded += box;
    }
    gpu::mbarrier_arrive_expect_tx(full, loaded * T::kHeadDim);
    for (int key = 0; key < keys; key += box) {
      const Place at = place_of(work, first + key);
      if (at.batch < 0) continue;
#pragma unroll
      for (int i = 0; i < TileType::kPanels; ++i) {
        gpu::tma_load_4d(to.bytes[i] + key * TileType::kPanelBytes, map, full,
                         i * TileType::kPanelBytes, at.row, steps.head * work.kv_head,
                         steps.batch * at.batch);
      }
    }
  }

 private:
  struct Place {
    int row, batch;  ///< batch: or the page; negative: there is none
  };
  GPU_FN Place place_of(const Work& work, int key) const {
    const RaggedParams& ragged = p.ragged;
    if (ragged.block_table == nullptr) {
      const bool packed = ragged.sequences.cu_seqlens_kv != nullptr;
      return {work.sequence.first_key + key, packed ? 0 : work.batch};
    }
    const int nth = attention::quotient(key, ragged.page_size);
    const int page =
        ragged.block_table[static_cast<std::int64_t>(work.batch) * ragged.max_pages + nth];
    return {key - nth * ragged.page_size.value, page < ragged.pages ? page : -1};
  }
  GPU_FN bool exists(const Work& work, int key) {
    if (place_of(work, key).batch >= 0) return true;
    sm.ragged.bad_page[slot_of<RaggedState<T>::kWorkTiles>(work_tile)] = true;
    if (p.ragged.fault != nullptr) gpu::atomic_max_relaxed(p.ragged.fault, 1);
    return false;
  }
};
template <class T>
struct RaggedLoads<T, false> {
  const Params& p;
  Shared<T>& sm;
};

}  // namespace fp8_sdpa::sm90

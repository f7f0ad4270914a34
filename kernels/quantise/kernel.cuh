// The quantiser: all passes over all heads in one launch, each tile loaded from memory once.
//
// A scale needs the whole head. All blocks run at once (a cooperative launch) and go through the
// tiles of all heads in steps: block b of B has tile b + n B in its step n. A tile stays in shared
// memory from the step that finds its largest magnitude to the one, `lag` steps later, that writes
// its codes; by then all tiles of its head have been through the first. Where heads are too long
// for that, the tile is loaded again, from the L2 cache. For the mean, the sums are added up `lead`
// steps before, from tiles that are in the L2 cache then.
//
//   pass  | of a tile                                    | of a head
//   ------|----------------------------------------------|----------------------------
//   mean  | column sums                                  | the mean, rotated
//   amax  | largest finite magnitude (less the mean)     | the descale, by each block
//   codes | x (less the mean) times 1 / descale, in FP8  |
//
// Two more warps of a block talk to the other blocks: one tells what its block has found in a step
// and learns what it needs in the next, one makes means of sums. Sums are added in the order of the
// tiles: the same bits each time.
#pragma once

#include "quantise/messenger.cuh"
#include "quantise/tile.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct Kernel {
  using Params = quantiser::Params;
  using B = Block<kFrom, kDim>;
  using Shared = typename B::Shared;
  using Work = TileWork<kFrom, kDim>;
  static constexpr int kThreads = B::kThreads;
  static constexpr int kMinBlocks = kFrom == Dtype::kFloat && kDim == 256 ? 1 : 2;
  static constexpr int kMinSmVersion = quantiser::kMinSmVersion;
  static constexpr bool kCooperative = true;
  static_assert(sizeof(Shared) <= 99 * 1024, "what an sm_89 has for a block");

  GPU_FN static int next_slot(int slot) { return slot + 1 < kSlots ? slot + 1 : 0; }

  GPU_FN static void compute(const Params& p, Shared& shared) {
    const typename Work::Own own(p);
    int asked_to = 0;  // slots
    int found_in = 0;
    int written_from = 0;
    for (int step = 0; step < B::end_step(p); ++step) {
      gpu::cp_async_wait<kAhead - 1>();
      gpu::mbarrier_wait(shared.said[step % B::kBoards], B::parity(step));
      const typename B::Board& board = shared.boards[step % B::kBoards];
      typename B::Findings& findings = shared.findings[step % 2];
      if (p.smooth && board.summed().rows > 0) Work::add_up(p, board.summed(), findings.sums);
      if (p.finds_amax && board.found().rows > 0) {
        const float amax = Work::find_amax(p, shared.held[found_in], board, shared);
        found_in = next_slot(found_in);
        if (gpu::lane_idx() == 0) findings.amax[gpu::warp_idx()] = amax;
      }
      gpu::mbarrier_arrive(shared.found[step % B::kBoards]);
      if (board.written().rows > 0) {
        if (p.keeps) {
          Work::write(p, own, shared.held[written_from], board, shared);
          written_from = next_slot(written_from);
        } else {
          Loaded<kFrom, kDim> loaded;
          loaded.load(board.written().from + own.from, p.from_strides.seq, board.written().rows);
          Work::write(p, own, loaded, board, shared);
        }
      }
      if (board.asked().rows > 0) {
        shared.held[asked_to].copy(board.asked().from + own.from, p.from_strides.seq,
                                   board.asked().rows);
        asked_to = next_slot(asked_to);
      }
      gpu::cp_async_commit();
    }
  }

  GPU_FN static void run(const Params& p, Shared& shared) {
    shared.signs.fill(p, kThreads);
    if (gpu::warp_idx() == 0) shared.hadamard[gpu::lane_idx()].fill();
    if (gpu::thread_idx() == 0) {
      for (int i = 0; i < B::kBoards; ++i) {
        gpu::mbarrier_init(shared.said[i], gpu::kWarpSize);
        gpu::mbarrier_init(shared.found[i], B::kWarps * gpu::kWarpSize);
      }
    }
    gpu::sync_block();
    switch (gpu::warp_idx()) {
      case B::kMessenger: Messenger<kFrom, kDim>::exchange(p, shared); break;
      case B::kMeanMaker: Messenger<kFrom, kDim>::make_means(p); break;
      default: compute(p, shared);
    }
  }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser

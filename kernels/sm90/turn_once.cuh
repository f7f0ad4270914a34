// V into tiles of V^T in the workspace, each once, by the blocks that want them: their shared
// memory and instruction slots are free of it from then on.
//
// A unit is up to 128 dims of a tile. The units of a (batch, KV head) are claimed in the order in
// which its first items want them, by blocks that want that head next and have nothing to turn:
// three warps of the producer warpgroup. TMA loads a unit while the one before it is turned
// (turn_values.cuh); they copy it out as it will lie in shared memory, swizzle and column of ones
// included, and say so. A loader waits for the units of a tile before it fetches them
// (producer.cuh). Nobody waits for a block that has not begun: a block claims the units of its
// heads until none is left, so that each is its own or some other's that runs.
#pragma once

#include "sm90/loads.cuh"
#include "sm90/turn_values.cuh"

namespace fp8_sdpa::sm90 {

/// The kernel before: nothing has been claimed or turned.
template <class Tag>
struct ResetUnits {
  struct Params {
    std::uint32_t* counts;
    std::size_t words;
  };
  struct Shared {};
  static constexpr int kThreads = 1024;
  static constexpr int kMinBlocks = 1;
  static constexpr int kMinSmVersion = sm90::kMinSmVersion;
  static constexpr bool kOnlySm90a = true;
  static constexpr bool kStartsEarly = true;

  static unsigned blocks(std::size_t words) {
    constexpr std::size_t kMaxBlocks = 128;
    const std::size_t blocks = (words + kThreads - 1) / kThreads;
    return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  }
  GPU_FN static void run(const Params& p, Shared& /*shared*/) {
    gpu::wait_for_earlier_kernels();
    gpu::let_next_kernel_start();
    const std::size_t step = std::size_t{gpu::grid_dim().x} * kThreads;
    for (std::size_t i = std::size_t{gpu::block_idx().x} * kThreads + gpu::thread_idx();
         i < p.words; i += step) {
      p.counts[i] = 0;
    }
  }
};

/// One of the warps that turn V for all.
template <class T>
struct UnitTurner {
  static constexpr int kDims = T::kUnitDims;
  static constexpr int kThreads = T::kTransposers * gpu::kWarpSize;
  static constexpr int kBarrier = 8;
  using Keys = Tile<T::kTileN, kDims>;
  using Dims = Tile<kDims, T::kTileN>;  ///< of a V that comes transposed
  using Turned = Tile<kDims + T::kExtraRows, T::kTileN>;
  static_assert(sizeof(Keys) == sizeof(Dims));

  const Params& p;
  Shared<T>& sm;
  int warp;

  GPU_FN void run() {
    write_ones<kDims>(sm.unit.turned, thread(), kThreads);
    gpu::wait_for_earlier_kernels();
    if (thread() == 0) {
      sm.unit.step = 0;
      sm.unit.batch_head = Unit::kNone;
      fetch(0);
    }
    for (unsigned nth = 0;; ++nth) {
      const int slot = slot_of<kSlots>(nth);
      meet();  // unit nth is known, and the one before it has been copied out
      if (thread() == 0 && nth > 0) say_turned(sm.unit.units[slot_of<kSlots>(nth - 1)]);
      const Unit unit = sm.unit.units[slot];
      if (unit.tile == Unit::kNone) return;
      if (thread() == 0) fetch(nth + 1);
      gpu::mbarrier_wait(sm.unit.landed[slot], full_parity<kSlots>(nth));
      turn(sm.unit.landing[slot]);
      meet();  // it has been turned
      copy_part<T>(sm.unit.turned, prepared_tile<T>(p.values, p.seq_kv, unit.batch_head, unit.tile),
                   unit.part, thread(), kThreads);
      gpu::fence_proxy_async();  // written by ordinary stores, to be read by bulk copies
    }
  }

 private:
  static constexpr int kSlots = UnitBuffers<T>::kSlots;

  GPU_FN int thread() const { return warp * gpu::kWarpSize + gpu::lane_idx(); }
  GPU_FN static void meet() { gpu::named_barrier_sync(kBarrier, kThreads); }
  GPU_FN void turn(Keys& landing) const {
    // Plus 0, loaded: else what follows from the warp is kept from unit to unit, and spilled.
    const float zero = *static_cast<const volatile float*>(&sm.zero);
    const ValueTurner<Keys, Turned, 1, T::kTransposers> turner{
        sm.zero, warp + __builtin_bit_cast(int, zero)};
    if (p.v_transposed) {
      turner.interleave(reinterpret_cast<Dims&>(landing), sm.unit.turned);
    } else {
      turner.transpose(landing, sm.unit.turned);
    }
  }
  GPU_FN void say_turned(const Unit& unit) const {
    const int tile = unit.batch_head * tiles_of_keys<T>(p) + unit.tile;
    gpu::atomic_add_acq_rel(p.units.turned + tile, 1);
    gpu::atomic_add_acq_rel(p.units.all, 1);
  }

  /// Claims the next unit of this block and has it loaded.
  GPU_FN void fetch(unsigned nth) const {
    const int slot = slot_of<kSlots>(nth);
    Unit& unit = sm.unit.units[slot];
    unit.tile = Unit::kNone;
    while (!claim(unit)) {
      if (!next_head()) return;
    }
    gpu::MBarrier& landed = sm.unit.landed[slot];
    gpu::mbarrier_arrive_expect_tx(landed, sizeof(Keys));
    const int batch_head = unit.batch_head;
    const int batch = batch_head / p.heads_kv;
    const MapPlace v_at = place(p.v_steps, batch_head - batch * p.heads_kv, batch);
    const int key = unit.tile * T::kTileN;
    const int dim = unit.part * kDims;
    if (p.v_transposed) {
      load_transposed_values(reinterpret_cast<Dims&>(sm.unit.landing[slot]), p.v, landed, key, dim,
                             v_at);
    } else {
      static_assert(Keys::kPanels == 1);
      gpu::tma_load_4d(sm.unit.landing[slot].bytes[0], p.v, landed, dim, key, v_at.head,
                       v_at.batch);
    }
  }
  GPU_FN bool claim(Unit& unit) const {
    const int batch_head = sm.unit.batch_head;
    if (batch_head == Unit::kNone) return false;
    const int tiles = tiles_of_keys<T>(p);
    const std::uint32_t claimed = gpu::atomic_add_acq_rel(p.units.claimed + batch_head, 1);
    if (claimed >= static_cast<std::uint32_t>(tiles * T::kUnits)) return false;
    const int nth = static_cast<int>(claimed);
    const int tile = nth / T::kUnits;
    const int pass = attention::quotient(batch_head * p.group.value, p.pass_heads);
    const bool last_tile_first = !p.causal || lengths_fall(p, pass);
    unit = {batch_head, last_tile_first ? tiles - 1 - tile : tile, nth % T::kUnits};
    return true;
  }
  /// The head of this block's next piece of work.
  GPU_FN bool next_head() const {
    const Piece piece = piece_of<T>(p, sm.unit.step++);
    if (piece.item == Piece::kNone) return false;
    const Work work = locate<T>(p, piece);
    sm.unit.batch_head = work.batch * p.heads_kv + work.kv_head;
    return true;
  }
};

}  // namespace fp8_sdpa::sm90

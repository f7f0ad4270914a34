// A block of the quantiser: its warps, its steps, and what the warps tell each other of them.
#pragma once

#include <cstdint>

#include "attention/divisor.hpp"
#include "quantise/rows.cuh"

namespace fp8_sdpa::quantiser {
inline namespace GPU_BACKEND {

template <Dtype kFrom, int kDim>
struct Block {
  static constexpr int kRows = rows_of_lane(kFrom, kDim);
  static constexpr int kTileRows = tile_rows(kFrom, kDim);
  static constexpr int kWarps = compute_warps(kFrom, kDim);
  static constexpr int kMessenger = kWarps;  ///< the warps after those that compute
  static constexpr int kMeanMaker = kWarps + 1;
  static constexpr int kThreads = (kWarps + 2) * gpu::kWarpSize;
  static constexpr int kColumns = kDim / gpu::kWarpSize;  ///< of a lane, where a warp has a row
  using Layout = quantiser::Layout<kFrom, kDim>;
  using Source = quantiser::Source<kFrom, kDim>;
  using Element = typename Layout::Element;
  using Rows = quantiser::Rows<kDim, kRows>;
  /// For sums over columns a row is had by so many threads; rows that the block has at a time, and
  /// what is left of them when each warp has added up its own.
  static constexpr int kLanesOfRow = kDim / Layout::kVector;
  static constexpr int kSumRows = kWarps * gpu::kWarpSize / kLanesOfRow;
  static constexpr int kSums = kSumRows < kWarps ? kSumRows : kWarps;

  /// A tile, and what is to be done with it.
  struct Task {
    const Element* from;  ///< its first element
    std::uint8_t* codes;
    int rows;  ///< of it that are there; 0: there is no tile
    int head;  ///< of all batches
    int tile;  ///< of the head

    GPU_FN std::int64_t nth(const Params& p) const { return std::int64_t{head} * p.tiles + tile; }
  };

  /// The columns of a row that one lane of a warp has.
  struct alignas(kDim == 64 ? 8 : 16) Columns {
    float x[kColumns];
  };
  struct alignas(16) Row {
    float x[kDim];
  };

  /// What the messenger says of a step.
  struct Board {
    Task tasks[4];
    float inverse;  ///< of the descale of what is written
    Row mean_for_amax, mean_for_codes;

    GPU_FN const Task& asked() const { return tasks[0]; }  ///< of the step that is kAhead later
    GPU_FN const Task& found() const { return tasks[1]; }
    GPU_FN const Task& written() const { return tasks[2]; }
    GPU_FN const Task& summed() const { return tasks[3]; }
  };
  /// What the warps that compute have found in a step.
  struct alignas(16) Findings {
    Row sums[kSums];
    float amax[kWarps];
  };

  /// Boards and barriers of four steps: while the warps that compute are in one, the messenger
  /// prepares the one after the next.
  static constexpr int kBoards = 4;
  struct Shared {
    Held<kFrom, kDim> held[kSlots];
    SignMasks<kDim> signs;
    typename Source::Hadamard hadamard[gpu::kWarpSize];
    Board boards[kBoards];
    Findings findings[2];
    gpu::MBarrier said[kBoards];   ///< the board is complete: by each lane of the messenger
    gpu::MBarrier found[kBoards];  ///< by each thread that computes
  };

  /// The block's tiles, one a step.
  class Cursor {
   public:
    GPU_FN explicit Cursor(const Params& p) {
      const auto block = static_cast<int>(gpu::block_idx().x);
      const auto blocks = static_cast<int>(gpu::grid_dim().x);
      head_ = block / p.tiles;
      tile_ = block % p.tiles;
      heads_a_step_ = blocks / p.tiles;
      tiles_a_step_ = blocks % p.tiles;
    }

    /// The next one. Of a negative step none.
    GPU_FN Task next(const Params& p, int step) {
      Task task{};
      if (step < 0) return task;
      if (head_ < p.all_heads) {
        task.head = head_;
        task.tile = tile_;
        const int row = tile_ * kTileRows;
        task.rows = p.seq - row < kTileRows ? p.seq - row : kTileRows;
        const int batch = attention::quotient(head_, p.heads);
        const int head = head_ - batch * p.heads.value;
        task.from = first(static_cast<const Element*>(p.from), p.from_strides, batch, head, row);
        task.codes = first(p.codes, p.codes_strides, batch, head, row);
      }
      head_ += heads_a_step_;
      tile_ += tiles_a_step_;
      if (tile_ >= p.tiles) {
        tile_ -= p.tiles;
        ++head_;
      }
      return task;
    }

   private:
    template <class T>
    GPU_FN static T* first(T* data, const Strides& strides, int batch, int head, int row) {
      return data + batch * strides.batch + head * strides.head + row * strides.seq;
    }

    int head_, tile_;
    int heads_a_step_, tiles_a_step_;
  };

  /// The tile that is found in step 0: it, and those before the first, are none.
  GPU_FN static int first_found(const Params& p) { return -(p.lead > kAhead ? p.lead : kAhead); }
  GPU_FN static int end_step(const Params& p) { return p.steps + p.lag - first_found(p); }
  /// The phase that a step's barriers are in.
  GPU_FN static int parity(int step) { return step / kBoards & 1; }
};

}  // namespace GPU_BACKEND
}  // namespace fp8_sdpa::quantiser

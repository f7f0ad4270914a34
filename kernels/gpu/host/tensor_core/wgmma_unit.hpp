// One block's wgmma: what is in flight, and what nobody may touch meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "gpu/host/executor/async_engine.hpp"
#include "gpu/host/executor/raw_memory.hpp"
#include "gpu/host/tensor_core/wgmma.hpp"
#include "gpu/host/tensor_core/wgmma_math.hpp"

namespace gpu::host {

class Block;
struct Fiber;

inline constexpr int kWarpsPerWarpgroup = 4;

/// An operand's rows in shared memory, each in two chunks: where, and what they held.
struct SharedRows {
  std::vector<std::size_t> offsets;
  std::vector<Chunk> bytes;
};

/// B of one multiply, read when the first warp of the warpgroup issues it.
struct MatrixB {
  SharedRows rows;
  DecodedB decoded;
};

/// One warp's d.
struct Accumulator {
  std::array<float*, 32> registers{};  ///< of each lane
  int n = 0;
  std::vector<float> values;  ///< (16, n); of the kernel's own as of the last wgmma_fence
  int in_flight = 0;          ///< multiplies
  std::uint64_t fences = 0;   ///< wgmma_fence calls before the wait that ended the last of them
};

/// One warp's part of a multiply in flight.
struct Multiply {
  Accumulator* d = nullptr;
  std::shared_ptr<const MatrixB> b;
  SharedRows a;                                        ///< if in shared memory
  std::array<const std::uint32_t*, 32> a_registers{};  ///< of each lane, else null
  std::array<Chunk, 32> a_words{};                     ///< what they held
  Location loc;
};

/// What all warps of a warpgroup must agree on.
struct WarpgroupMultiply {
  WgmmaOperands operands;
  Location loc;
  std::shared_ptr<const MatrixB> b;
};

struct WarpgroupLog {
  std::deque<WarpgroupMultiply> multiplies;              ///< that some warp has not issued yet
  std::uint64_t first = 0;                               ///< number of multiplies.front()
  std::array<std::uint64_t, kWarpsPerWarpgroup> next{};  ///< by warp
};

/// A's registers, and what they held at the last wgmma_fence, or at their first use after it.
struct UsedRegisters {
  std::array<const std::uint32_t*, 32> registers{};
  std::array<Chunk, 32> words{};
};

/// One warp's wgmma.
struct WgmmaWarp {
  /// Tokens are reused after this many groups: more than any kernel keeps in flight.
  static constexpr std::size_t kTokens = 16;

  std::vector<std::unique_ptr<Accumulator>> accumulators;
  std::vector<UsedRegisters> used;
  std::vector<Multiply> open;  ///< not committed
  std::deque<std::vector<Multiply>> groups;
  std::uint64_t fences = 0;
  std::uint64_t committed = 0;      ///< groups
  std::uint64_t landed = 0;         ///< groups
  std::uint64_t landed_before = 0;  ///< the last wait
  AsyncEngine engine{"wgmma"};      ///< for TSan
  std::array<char, kTokens> tokens{};

  void reset();
};

class WgmmaUnit {
 public:
  void reset(int threads);
  WgmmaWarp& warp(int index) { return *warps_[index]; }
  WarpgroupLog& log(int warp) { return logs_[warp / kWarpsPerWarpgroup]; }
  /// Ends the kernel with an error if the warp of `me` has multiplies in flight.
  void check_exit(const Fiber& me) const;

 private:
  std::vector<std::unique_ptr<WgmmaWarp>> warps_;
  std::vector<WarpgroupLog> logs_;
};

/// Reads the rows of a K-major matrix in shared memory, `first` and on. An error unless all of them
/// are inside, at rest, and known to the async proxy. `what` is A or B.
SharedRows read_rows(Block& block, const Fiber& me, std::uint64_t descriptor, int first, int count,
                     const char* what);
/// The same of B (16 x n) of 16-bit elements, N-major: its rows one after the other.
SharedRows read_n_major(Block& block, const Fiber& me, std::uint64_t descriptor, int n);
/// Whether they still hold what they held.
bool unchanged(Block& block, const SharedRows& rows);

}  // namespace gpu::host

// One block's mbarriers: counts, phases, and who waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/host/executor/runtime.hpp"
#include "gpu/host/memory/tma_transfer.hpp"

namespace gpu {
struct MBarrier;
}

namespace gpu::host {

class Block;
struct Fiber;

struct MBarrierState {
  struct Waiter {
    Fiber* fiber;
    std::uint64_t phase;
  };

  const MBarrier* at = nullptr;
  std::size_t offset = 0;  ///< in shared memory
  Location initialised;
  int initialiser = 0;       ///< the thread
  bool fenced = false;       ///< the async proxy knows of it
  int count = 0;             ///< arrivals of a phase
  int pending = 0;           ///< arrivals that this phase still waits for
  std::int64_t bytes = 0;    ///< that it still waits for; below 0 while some came before expected
  std::uint64_t phase = 0;   ///< phases that have completed
  std::uint64_t waited = 0;  ///< phases whose end somebody has waited for
  std::uint64_t loaded = 0;  ///< 1 + the last phase that a TMA load was issued for
  Location last_load;
  std::vector<Waiter> waiters;
  std::vector<TmaTransfer> landed;  ///< loads counted in this phase, shown when it ends
  std::array<char, 2> tokens{};     ///< for TSan, by parity of the phase

  int parity() const { return static_cast<int>(phase % 2); }
  void* token() { return &tokens[phase % 2]; }
};

class MBarriers {
 public:
  void reset() { states_.clear(); }

  /// Null if there is no barrier here.
  MBarrierState* find(const MBarrier* at);
  /// A barrier in these bytes of shared memory, or null.
  const MBarrierState* find_inside(std::size_t offset, std::size_t bytes) const;
  MBarrierState& add(const MBarrier* at);
  /// Makes the barriers that this thread initialised known to the async proxy.
  void fence(int thread);

  /// The load into this byte of shared memory whose phase has not ended yet, or null.
  const TmaTransfer* find_landed(std::size_t offset) const;

  /// Ends the phase if all has come. Empty, or what is wrong with its counts.
  std::string settle(Block& block, MBarrierState& state);

  /// What the kernel left undone on this barrier, or empty.
  static std::string unfinished(const MBarrierState& state);
  /// The same for all barriers.
  std::string unfinished() const;

  /// Every barrier that somebody waits for, in words: "; threads 0-31 wait for phase 0 of ...".
  std::string describe_waits() const;

 private:
  std::vector<std::unique_ptr<MBarrierState>> states_;
};

/// "the mbarrier at byte 4096 of shared memory, initialised at ring.cuh:31"
std::string describe(const MBarrierState& state);

}  // namespace gpu::host

// Clusters on the host executor: see gpu/cluster.hpp. The blocks of a cluster share an OS thread:
// one runs until all its threads are blocked, then the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host {

class Block;
struct Fiber;

inline constexpr int kMaxClusterBlocks = 8;

/// The blocks of a cluster in execution, and their barrier.
class Cluster {
 public:
  /// For blocks that are about to start.
  void reset(std::vector<Block*> blocks, int threads);

  const std::vector<Block*>& blocks() const { return blocks_; }
  int rank_of(const Block& block) const;

  void arrive(Fiber& me);
  void wait(Fiber& me);
  /// A thread that has exited is not waited for.
  void exit(const Fiber& me);

 private:
  void settle();

  std::vector<Block*> blocks_;
  int expected_ = 0;  ///< threads in this phase
  int leaving_ = 0;   ///< of those, threads that have arrived and exited
  int arrived_ = 0;
  std::uint64_t phase_ = 0;
  std::vector<Fiber*> waiters_;
  std::array<char, 2> tokens_{};  ///< for TSan, by phase
};

int cluster_rank();
void cluster_arrive(Location loc);
void cluster_wait(Location loc);
std::uint32_t cluster_address(const void* shared, int rank, Location loc);
/// The memory behind an address; an error unless the block that owns it is alive.
const void* cluster_memory(std::uint32_t address, std::size_t bytes, Location loc);

}  // namespace gpu::host

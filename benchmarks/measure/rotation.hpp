// Copies of a problem's inputs, one after the other, so that no launch finds its inputs in L2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fp8_sdpa/plan.hpp"
#include "fp8_sdpa/status.hpp"
#include "reference/oracle/memory.hpp"

namespace fp8_sdpa::bench {

/// Bytes of Q, K and V of a problem.
std::int64_t input_bytes(const Problem& problem);

/// Bytes of the device's L2 cache; 0 on the host executor.
Result<std::int64_t> l2_bytes(const Device& device);

/// How many copies of `bytes` of inputs go round so that together they are twice the L2 cache: what
/// a launch reads was last read so long ago that at least half of it is gone, however the cache
/// replaces. 1, the inputs themselves, where they do not fit into L2 anyway.
std::int64_t rotating_copies(std::int64_t bytes, std::int64_t l2_bytes);

/// Plans of one problem on copies of its inputs; descales and output are the problem's own.
class Rotation {
 public:
  /// Copies the inputs of the plan's problem, as they are now, `copies` times.
  static Result<Rotation> make(const Plan& plan, std::int64_t copies);

  std::size_t size() const { return plans_.size(); }
  /// The next copy's plan, round and round.
  const Plan& next() { return plans_[next_++ % plans_.size()]; }

 private:
  std::vector<std::unique_ptr<reference::Buffer>> buffers_;  ///< of Q, K and V, all copies of each
  std::vector<Plan> plans_;
  std::size_t next_ = 0;
};

}  // namespace fp8_sdpa::bench

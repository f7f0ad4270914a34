// One block's TMA loads in flight.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gpu/host/memory/tma_transfer.hpp"

namespace gpu::host {

class Block;

/// A load lands at once or late; late ones show NaN bytes, poisoned for AddressSanitizer, until
/// their barrier's phase is complete.
class TmaLoads {
 public:
  void reset() { transfers_.clear(); }

  /// The load into this byte of shared memory, or null.
  const TmaTransfer* find(std::size_t offset) const {
    for (const TmaTransfer& transfer : transfers_) {
      if (transfer.covers(offset)) return &transfer;
    }
    return nullptr;
  }

  void issue(Block& block, TmaTransfer transfer);
  /// Counts the bytes of load `index` at its barrier. Empty, or what is wrong about that.
  std::string land(Block& block, std::size_t index);
  /// Shows what has landed. Empty, or whose destination was written while it was in flight.
  std::string show(Block& block, const std::vector<TmaTransfer>& landed) const;

  /// A load that nobody has waited for, or empty.
  std::string unfinished() const;

 private:
  std::vector<TmaTransfer> transfers_;
};

}  // namespace gpu::host

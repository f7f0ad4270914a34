// One thread's TMA stores, in the order of issue.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "gpu/host/memory/tma_transfer.hpp"

namespace gpu::host {

struct Fiber;

/// A store reads shared memory between its issue and a wait, and writes global memory at its issue
/// or as late as at a wait for that, or at the block's end.
class TmaStores {
 public:
  void reset();

  void issue(Fiber& me, TmaTransfer transfer, void* caller);
  void commit() { group_ends_.push_back(transfers_.size()); }
  /// Waits for all but the youngest groups. Null, or a store whose source somebody wrote before the
  /// wait.
  const TmaTransfer* wait(Fiber& me, std::size_t groups_in_flight, bool until_written);
  /// Lets all stores arrive in global memory.
  void write_all();

  /// Stores that no wait has asked for, uncommitted ones included.
  std::size_t unread() const { return transfers_.size() - read_; }

 private:
  /// Tokens are reused after this many groups: more than any kernel keeps in flight.
  static constexpr std::size_t kTokens = 64;

  std::vector<TmaTransfer> transfers_;
  std::vector<std::size_t> group_ends_;  ///< index into transfers_ past each group's last
  std::size_t read_ = 0;                 ///< transfers that a wait has asked for
  std::size_t read_groups_ = 0;
  std::size_t written_groups_ = 0;
  std::array<char, kTokens> read_tokens_{};  ///< for TSan
  std::array<char, kTokens> written_tokens_{};
};

}  // namespace gpu::host

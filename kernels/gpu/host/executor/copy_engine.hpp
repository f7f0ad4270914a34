// cp.async: one thread's asynchronous copies, in the order of issue.
#pragma once

#include <array>
#include <cstddef>
#include <source_location>
#include <vector>

namespace gpu::host {

struct Fiber;

/// A copy that was issued and has not been waited for.
struct PendingCopy {
  char* dst;
  const char* src;
  int src_bytes;
  std::source_location loc;
};

/// Lands copies late (at the wait, the destination poisoned until then) or at once. For
/// ThreadSanitizer it is a thread of its own: after the issue, before the wait that asks for it,
/// and unordered with all else.
class CopyEngine {
 public:
  CopyEngine() = default;
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Drops what an error left in flight: for the caller those copies are over.
  void reset();

  void issue(Fiber& me, const PendingCopy& copy, bool late, void* caller);
  void commit();
  /// Lands all but the youngest groups. Null, or a copy whose destination somebody wrote while it
  /// was in flight.
  const PendingCopy* wait(std::size_t groups_in_flight, bool late);

  /// Copies that no wait has asked for, uncommitted ones included.
  std::size_t in_flight() const { return copies_.size() - landed_copies_; }

 private:
  /// Tokens are reused after this many groups: more than any kernel keeps in flight.
  static constexpr std::size_t kTokens = 64;

  void announce(Fiber& me, const PendingCopy& copy, void* caller);

  std::vector<PendingCopy> copies_;
  std::vector<std::size_t> group_ends_;  ///< index into copies_ past each group's last
  std::size_t landed_copies_ = 0;
  std::size_t landed_groups_ = 0;
  void* tsan_fiber_ = nullptr;
  char issue_token_ = 0;
  std::array<char, kTokens> landed_tokens_{};
};

}  // namespace gpu::host

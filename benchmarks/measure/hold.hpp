// Holds a stream back while work is queued behind it, so that the host's part of a launch is over
// before the device begins, and events around the launch see the device's part alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fp8_sdpa/status.hpp"

struct CUstream_st;

namespace fp8_sdpa::bench {

/// The longest that a stream is held, in nanoseconds: whatever becomes of the host, the device goes
/// on. Queueing a launch and two events takes some 10 us.
inline constexpr std::uint64_t kLongestHoldNs = 20'000'000;

/// How often something is queued anew where the host was too slow for that.
inline constexpr int kHoldTries = 5;

/// Looks until released() is true or `limit_ns` of now_ns() are over. Whether it was released.
/// Unsigned arithmetic: a clock that wraps around is no longer wait.
template <class Released, class Now>
#if defined(__CUDACC__)
__host__ __device__
#endif
    bool
    wait_released(const Released& released, const Now& now_ns, std::uint64_t limit_ns) {
  const std::uint64_t start = now_ns();
  do {
    if (released()) return true;
  } while (now_ns() - start < limit_ns);
  return released();
}

/// Queues by queue(), kHoldTries times at most, until what it queued began after its release:
/// queue() says so, or why it could not.
template <class Queue>
Status queue_held(const Queue& queue) {
  for (int i = 0; i < kHoldTries; ++i) {
    const Result<bool> held = queue();
    if (!held.ok()) return held.status();
    if (*held) return {};
  }
  return {StatusCode::kDeviceError,
          "the host was too slow to queue a launch while the stream was held, " +
              std::to_string(kHoldTries) + " times"};
}

/// A kernel of one thread that holds a stream until it is released, or for kLongestHoldNs. The
/// stream must be idle when it is held: one hold at a time.
class Hold {
 public:
  static Result<Hold> make();

  Hold(Hold&&) noexcept;
  Hold& operator=(Hold&&) noexcept;
  ~Hold();

  /// Queues the kernel: what is queued behind it waits.
  Status hold(CUstream_st* stream);
  /// Lets the stream go on. Call it whatever went wrong in between.
  void release();
  /// Once the stream is idle again: whether it was held until release().
  bool was_held() const;

 private:
  struct Words;  ///< that host and device see
  struct FreeWords {
    void operator()(Words* words) const;
  };
  explicit Hold(Words* words);
  std::unique_ptr<Words, FreeWords> words_;
  std::uint32_t ticket_ = 0;
};

}  // namespace fp8_sdpa::bench

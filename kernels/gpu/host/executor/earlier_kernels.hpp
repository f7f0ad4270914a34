// What earlier kernels on the stream do, run at most once in a launch: see
// gpu/dependent_launch.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace gpu::host {

class EarlierKernels {
 public:
  explicit EarlierKernels(const std::function<void()>& kernels) : kernels_(kernels) {}

  /// Or there are none.
  bool have_ended() const { return !kernels_ || state_.load() == State::kEnded; }
  /// Returns when they have ended; runs them if nobody has. Orders what they did before what the
  /// caller does next, and nothing else. Throws what they throw.
  void wait();

 private:
  enum class State : std::uint8_t { kNotBegun, kRunning, kEnded };

  void run();

  const std::function<void()>& kernels_;
  std::atomic<State> state_ = State::kNotBegun;
  char token_ = 0;  ///< for TSan
};

}  // namespace gpu::host

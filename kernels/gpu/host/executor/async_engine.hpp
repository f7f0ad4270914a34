// An asynchronous unit (TMA, tensor cores) as ThreadSanitizer sees it: a thread of its own, ordered
// after what issued the work, and unordered with all else until somebody waits for it.
#pragma once

#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {

class AsyncEngine {
 public:
  explicit AsyncEngine(const char* name) : name_(name) {}
  ~AsyncEngine() { tsan::destroy_fiber(fiber_); }
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  /// Has the engine call accesses() after what the fiber `issuer` has done, and release to each of
  /// the tokens. Nothing without ThreadSanitizer.
  template <class Accesses, class... Tokens>
  void play(void* issuer, Accesses accesses, Tokens*... landed) {
    if constexpr (kTsan) {
      if (fiber_ == nullptr) {
        fiber_ = tsan::create_fiber();
        tsan::set_name(fiber_, name_);
      }
      tsan::release(&issue_token_);
      tsan::switch_to(fiber_);
      tsan::acquire(&issue_token_);
      accesses();
      (tsan::release(landed), ...);
      tsan::switch_to(issuer);
    }
  }

 private:
  const char* name_;
  void* fiber_ = nullptr;
  char issue_token_ = 0;
};

}  // namespace gpu::host

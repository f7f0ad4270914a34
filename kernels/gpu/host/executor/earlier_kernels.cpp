#include "gpu/host/executor/earlier_kernels.hpp"

#include <exception>
#include <thread>

#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {

void EarlierKernels::wait() {
  if (!kernels_) return;
  State state = State::kNotBegun;
  if (state_.compare_exchange_strong(state, State::kRunning)) {
    run();
  } else {
    state_.wait(State::kRunning);
  }
  tsan::acquire(&token_);
}

/// On an OS thread of their own: a fiber of a kernel has a small stack, and is no place to launch
/// from.
void EarlierKernels::run() {
  std::exception_ptr error;
  std::thread([&] {
    try {
      kernels_();
    } catch (...) {
      error = std::current_exception();
    }
    tsan::release(&token_);
  }).join();
  state_ = State::kEnded;
  state_.notify_all();
  if (error) std::rethrow_exception(error);
}

}  // namespace gpu::host

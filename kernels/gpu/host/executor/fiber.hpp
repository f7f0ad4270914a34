// Machine contexts: what a CUDA thread runs on. Boost.Context's fcontext switches in 5 to 7 ns,
// where ucontext, which saves the signal mask by a system call, takes 40 times that.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace gpu::host {

/// Memory for one fiber's stack, with a page below it that no access survives.
class Stack {
 public:
  /// Throws std::bad_alloc. `index` staggers the stack's top: tops at equal page offsets would all
  /// fall into the same sets of the L1 cache.
  explicit Stack(int index);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  /// The end that a stack grows from.
  char* top() const { return bottom_ + size_; }
  std::size_t size() const { return size_; }

 private:
  char* mapping_;
  char* bottom_;
  std::size_t size_;
};

/// A suspended flow of control: a fiber, or the OS thread that runs the fibers.
struct Context {
  boost::context::detail::fcontext_t suspended = nullptr;
  void (*entry)(Context&) = nullptr;   ///< what a fiber runs; never returns
  const void* stack_bottom = nullptr;  ///< for AddressSanitizer
  std::size_t stack_size = 0;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};

/// Suspends `from`, which runs now, and resumes `to`. Returns when somebody switches back.
void switch_context(Context& from, Context& to);

/// Makes `context` a fiber: the first switch to it calls entry(context) on `stack`. `entry` never
/// returns.
void make_fiber(Context& context, const Stack& stack, void (*entry)(Context&));

}  // namespace gpu::host

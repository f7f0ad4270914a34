#include "gpu/host/executor/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

/// Room for a kernel's frames. Sanitizers put redzones around every variable. Pages are taken from
/// the system when first touched.
constexpr std::size_t kStackBytes = (kAsan || kTsan ? 256 : 64) * std::size_t{1024};

/// Three cache lines more for each fiber, over one page.
constexpr std::size_t kStaggerBytes = 192;
constexpr std::size_t kStaggerRange = 4096;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Who switches to whom; lives on the stack of the one who is suspended.
struct Switch {
  Context* from;
  Context* to;
};

/// Completes a switch on the side of the resumed context: notes where the other one stopped.
Context& arrive(transfer_t transfer, void* fake_stack) {
  const Switch& made = *static_cast<const Switch*>(transfer.data);
  Context& me = *made.to;
  made.from->suspended = transfer.fctx;
  asan::finish_switch(fake_stack, &made.from->stack_bottom, &made.from->stack_size);
  return me;
}

void trampoline(transfer_t transfer) {
  Context& me = arrive(transfer, nullptr);
  me.entry(me);
}

}  // namespace

Stack::Stack(int index) {
  const std::size_t page = page_bytes();
  void* mapping = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapping);
  if (mprotect(mapping_, page, PROT_NONE) != 0) {
    munmap(mapping_, kStackBytes + page);
    throw std::bad_alloc();
  }
  bottom_ = mapping_ + page;
  size_ = kStackBytes - static_cast<std::size_t>(index) * kStaggerBytes % kStaggerRange;
}

Stack::~Stack() {
  const std::size_t bytes = kStackBytes + page_bytes();
  asan::unpoison(mapping_, bytes);
  munmap(mapping_, bytes);
}

void switch_context(Context& from, Context& to) {
  Switch made{.from = &from, .to = &to};
  asan::start_switch(&from.fake_stack, to.stack_bottom, to.stack_size);
  tsan::switch_to(to.tsan_fiber);
  arrive(jump_fcontext(to.suspended, &made), from.fake_stack);
}

void make_fiber(Context& context, const Stack& stack, void (*entry)(Context&)) {
  context.entry = entry;
  context.stack_bottom = stack.top() - stack.size();
  context.stack_size = stack.size();
  context.suspended = make_fcontext(stack.top(), stack.size(), trampoline);
}

}  // namespace gpu::host

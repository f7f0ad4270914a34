#include "gpu/host/executor/copy_engine.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/raw_memory.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {
namespace {

/// What cp.async.cg moves, and the alignment of both its addresses.
constexpr std::size_t kCopyBytes = 16;
constexpr unsigned char kPoisonByte = 0xFF;

void land(const PendingCopy& copy) {
  if (copy.src_bytes == static_cast<int>(kCopyBytes)) {
    std::memcpy(copy.dst, copy.src, kCopyBytes);
  } else {
    raw_copy(copy.dst, copy.src, copy.src_bytes);
    raw_fill(copy.dst + copy.src_bytes, 0, kCopyBytes - copy.src_bytes);
  }
}

bool is_poison(const char* bytes) {
  return std::all_of(bytes, bytes + kCopyBytes,
                     [](char byte) { return static_cast<unsigned char>(byte) == kPoisonByte; });
}

/// Reads what the copy will read, while its caller is on the stack: AddressSanitizer then names the
/// line that issued it.
void touch([[maybe_unused]] const PendingCopy& copy) {
  if constexpr (kAsan) {
    for (int i = 0; i < copy.src_bytes; ++i) {
      static_cast<void>(static_cast<const volatile char*>(copy.src)[i]);
    }
  }
}

void check(const Fiber& me, const Operation& operation, const PendingCopy& copy) {
  if (reinterpret_cast<std::uintptr_t>(copy.dst) % kCopyBytes != 0) {
    fail(me, operation, "misaligned destination: not a multiple of 16 bytes");
  }
  if (reinterpret_cast<std::uintptr_t>(copy.src) % kCopyBytes != 0) {
    fail(me, operation, "misaligned source: not a multiple of 16 bytes");
  }
  if (!me.block.shared().contains(copy.dst, kCopyBytes)) {
    fail(me, operation, "destination outside the block's shared memory");
  }
}

}  // namespace

CopyEngine::~CopyEngine() { tsan::destroy_fiber(tsan_fiber_); }

void CopyEngine::reset() {
  if (in_flight() > 0) {
    for (char& token : landed_tokens_) tsan::acquire(&token);
  }
  copies_.clear();
  group_ends_.clear();
  landed_copies_ = 0;
  landed_groups_ = 0;
}

void CopyEngine::announce(Fiber& me, const PendingCopy& copy, void* caller) {
  if constexpr (!kTsan) return;
  if (tsan_fiber_ == nullptr) {
    tsan_fiber_ = tsan::create_fiber();
    tsan::set_name(tsan_fiber_, "cp.async engine");
  }
  tsan::release(&issue_token_);
  tsan::switch_to(tsan_fiber_);
  tsan::acquire(&issue_token_);
  tsan::copy_accesses(caller, copy.dst, kCopyBytes, copy.src, copy.src_bytes);
  tsan::release(&landed_tokens_[group_ends_.size() % kTokens]);
  tsan::switch_to(me.tsan_fiber);
}

void CopyEngine::issue(Fiber& me, const PendingCopy& copy, bool late, void* caller) {
  touch(copy);
  announce(me, copy, caller);
  const tsan::Quiet quiet;
  copies_.push_back(copy);
  if (late) {
    raw_fill(copy.dst, kPoisonByte, kCopyBytes);
    asan::poison(copy.dst, kCopyBytes);
  } else {
    land(copy);
  }
}

void CopyEngine::commit() { group_ends_.push_back(copies_.size()); }

const PendingCopy* CopyEngine::wait(std::size_t groups_in_flight, bool late) {
  const PendingCopy* overwritten = nullptr;
  for (; group_ends_.size() - landed_groups_ > groups_in_flight; ++landed_groups_) {
    for (; landed_copies_ < group_ends_[landed_groups_]; ++landed_copies_) {
      const PendingCopy& copy = copies_[landed_copies_];
      if (!late) continue;
      asan::unpoison(copy.dst, kCopyBytes);
      if (!is_poison(copy.dst)) overwritten = &copy;
      land(copy);
    }
    tsan::acquire(&landed_tokens_[landed_groups_ % kTokens]);
  }
  return overwritten;
}

void cp_async(void* shared_dst, const void* global_src, int src_bytes, const char* name,
              Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = name, .loc = loc};
  const PendingCopy copy{.dst = static_cast<char*>(shared_dst),
                         .src = static_cast<const char*>(global_src),
                         .src_bytes = src_bytes,
                         .loc = loc};
  check(me, me.at, copy);
  me.copies.issue(me, copy, me.block.lands_late(), __builtin_return_address(0));
  me.block.preempt(me);
}

void cp_async_commit(Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "cp_async_commit", .loc = loc};
  const tsan::Quiet quiet;
  me.copies.commit();
  me.block.preempt(me);
}

void cp_async_wait(int groups_in_flight, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "cp_async_wait", .loc = loc};
  const tsan::Quiet quiet;
  const PendingCopy* overwritten =
      me.copies.wait(static_cast<std::size_t>(groups_in_flight), me.block.lands_late());
  if (overwritten != nullptr) {
    fail(me, me.at,
         "the destination of the copy issued at " + describe(overwritten->loc) +
             " was written while that copy was in flight");
  }
  me.block.preempt(me);
}

}  // namespace gpu::host

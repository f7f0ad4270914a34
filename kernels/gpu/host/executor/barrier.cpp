// What waits for other threads: warp collectives and barriers.
//
// bar.sync and bar.arrive count warps, not threads (PTX ISA, "bar, barrier": in the aligned form
// all threads of a warp execute the same instruction). So a barrier first gathers its warp, like
// any other collective, and the warp's last lane counts it.
//
// Warps that block at one barrier do so at one instruction: else compute-sanitizer's synccheck
// stops the kernel ("divergent thread(s) in block"), though an H200 gets by with it. A function
// that waits for its callers is told apart by its template arguments, or passes on the place it was
// called at.
#include <bit>
#include <string>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"

namespace gpu::host {
namespace {

void no_action(Warp&) {}

/// One lane's part in a shuffle.
struct Shuffle {
  std::uint64_t in;
  std::uint64_t out;
  int source_lane;
};

void exchange(Warp& warp) {
  for (void* argument : warp.arguments) {
    auto& to = *static_cast<Shuffle*>(argument);
    to.out = static_cast<const Shuffle*>(warp.arguments[to.source_lane])->in;
  }
}

/// One lane's part in a vote: what it says, and then what any says.
void vote(Warp& warp) {
  bool any = false;
  for (const void* argument : warp.arguments) any = any || *static_cast<const bool*>(argument);
  for (void* argument : warp.arguments) *static_cast<bool*>(argument) = any;
}

/// Passes on to `barrier_token` what the lanes of a warp released to `warp_token`. Lanes that do
/// not wait learn nothing of each other, so an agent does it for them.
void hand_over(Fiber& me, bool wait_for_it, void* warp_token, void* barrier_token) {
  void* agent = wait_for_it ? nullptr : tsan::create_fiber();
  if (!wait_for_it) tsan::switch_to(agent);
  tsan::acquire(warp_token);
  tsan::release(barrier_token);
  if (!wait_for_it) tsan::switch_to(me.tsan_fiber);
  tsan::destroy_fiber(agent);
}

}  // namespace

bool Block::arrive(Fiber& me, const Operation& operation, void* argument) {
  Warp& warp = warps_[me.warp];
  me.at = operation;
  if (warp.exited != 0) {
    fail(me, operation, describe_lanes(warp.exited) + " of its warp have exited");
  }
  if (warp.arrived == 0) {
    warp.at = operation;
  } else if (!(warp.at == operation)) {
    fail(me, operation,
         "divergent warp: " + describe_lanes(warp.arrived) + " wait in " + describe(warp.at));
  }
  warp.arguments[me.lane] = argument;
  warp.arrived |= 1U << me.lane;
  return warp.arrived == kAllLanes;
}

void Block::release_warp(Fiber& me) {
  Warp& warp = warps_[me.warp];
  warp.next_phase();
  for (Fiber* fiber : warp.fibers) {
    if (fiber != &me) ready_.push(fiber);
  }
}

void Block::collective(Fiber& me, const Operation& operation, WarpAction action, void* argument) {
  const tsan::Quiet quiet;
  if (arrive(me, operation, argument)) {
    action(warps_[me.warp]);
    release_warp(me);
    preempt(me);
  } else {
    wait(me);
  }
}

void Block::sync_warp(Fiber& me, const Operation& operation) {
  void* token = warps_[me.warp].token();
  tsan::release(token);
  collective(me, operation, no_action, nullptr);
  tsan::acquire(token);
}

void Block::check_barrier(Fiber& me, const Operation& operation) {
  if (operation.barrier == Operation::kWholeBlock) {
    if (live_ == launch_.threads) return;
    fail(me, operation, describe_threads(launch_.threads, [this](int t) {
                          return fibers_[t]->exited;
                        }) + " have exited and can never come");
  }
  if (operation.threads <= 0 || operation.threads % kLanesPerWarp != 0 ||
      operation.threads > launch_.threads) {
    fail(me, operation,
         "a barrier waits for a multiple of 32 threads, at most the block's " +
             std::to_string(launch_.threads));
  }
}

void Block::barrier(Fiber& me, const Operation& operation, bool wait_for_it) {
  const tsan::Quiet quiet;
  check_barrier(me, operation);
  Warp& warp = warps_[me.warp];
  if constexpr (kTsan) {
    Barrier& barrier = barrier_of(operation);
    if (warp.arrived == 0) warp.barrier_phase = barrier.phase;
    tsan::release(barrier.token());
    if (operation.barrier != Operation::kWholeBlock) tsan::release(warp.token());
  }
  if (!arrive(me, operation, nullptr)) {
    wait(me);
  } else if (count_warp(me, operation, wait_for_it) || !wait_for_it) {
    preempt(me);
  } else {
    wait(me);
  }
  if (wait_for_it) tsan::acquire(warp.barrier_token);
}

Barrier& Block::barrier_of(const Operation& operation) {
  return barriers_[operation.barrier == Operation::kWholeBlock ? 0 : operation.barrier];
}

bool Block::count_warp(Fiber& me, const Operation& operation, bool wait_for_it) {
  Barrier& barrier = barrier_of(operation);
  const int threads =
      operation.barrier == Operation::kWholeBlock ? launch_.threads : operation.threads;
  const std::uint32_t warp_bit = 1U << me.warp;
  if (barrier.arrived == 0) {
    barrier.threads = threads;
    barrier.first = operation;
  } else if (barrier.threads != threads) {
    fail(me, operation,
         "waits for " + std::to_string(threads) + " threads, but " +
             describe_warps(barrier.arrived) + " came with " + std::to_string(barrier.threads) +
             " in " + describe(barrier.first));
  } else if ((barrier.arrived & warp_bit) != 0) {
    fail(me, operation,
         "warp " + std::to_string(me.warp) + " comes twice before the barrier is complete; " +
             describe_warps(barrier.arrived) + " have come for " + describe(barrier.first));
  }
  Warp& warp = warps_[me.warp];
  warp.barrier_token = barrier.token();
  if (kTsan && warp.barrier_phase != barrier.phase) {
    // Other warps completed a phase while this one gathered: its lanes released to that phase.
    hand_over(me, wait_for_it, warp.token(), warp.barrier_token);
  }
  barrier.arrived |= warp_bit;
  if (wait_for_it) {
    if (barrier.waiting == 0) {
      barrier.first_waiting = operation;
    } else if (!operation.is_instruction_of(barrier.first_waiting)) {
      fail(me, operation,
           describe_warps(barrier.waiting) + " wait at this barrier by another instruction, " +
               describe(barrier.first_waiting));
    }
    barrier.waiting |= warp_bit;
    warp.next_phase();
  } else {
    release_warp(me);
  }
  if (std::popcount(barrier.arrived) * kLanesPerWarp < threads) return false;
  for (Warp& other : warps_) {
    if ((barrier.waiting >> (&other - warps_.data()) & 1) == 0) continue;
    for (Fiber* fiber : other.fibers) {
      if (fiber != &me) ready_.push(fiber);
    }
  }
  barrier.arrived = 0;
  barrier.waiting = 0;
  ++barrier.phase;
  return true;
}

void sync_block(Location loc) {
  Fiber& me = current_fiber();
  me.block.barrier(me, {.name = "sync_block", .loc = loc, .barrier = Operation::kWholeBlock}, true);
}

void sync_warp(Location loc) {
  Fiber& me = current_fiber();
  me.block.sync_warp(me, {.name = "sync_warp", .loc = loc});
}

void named_barrier(int id, int threads, bool wait, Location loc) {
  Fiber& me = current_fiber();
  const char* name = wait ? "named_barrier_sync" : "named_barrier_arrive";
  const Operation operation{.name = name, .loc = loc, .barrier = id, .threads = threads};
  if (id < 0 || id >= kBarriers) {
    fail(me, operation, "barriers are numbered 0 to " + std::to_string(kBarriers - 1));
  }
  me.block.barrier(me, operation, wait);
}

std::uint64_t shuffle(std::uint64_t bits, int source_lane, const char* name, Location loc) {
  Fiber& me = current_fiber();
  Shuffle mine{.in = bits, .out = 0, .source_lane = source_lane & (kLanesPerWarp - 1)};
  me.block.collective(me, {.name = name, .loc = loc}, exchange, &mine);
  return mine.out;
}

bool any_lane(bool says, Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "any_lane", .loc = loc}, vote, &says);
  return says;
}

}  // namespace gpu::host

// mbarriers: arrivals, bytes, phases.
#include "gpu/host/memory/mbarrier.hpp"

#include <algorithm>
#include <string>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/raw_memory.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/memory/async_units.hpp"
#include "gpu/host/memory/mbarrier_unit.hpp"
#include "gpu/mbarrier.hpp"

namespace gpu::host {
namespace {

/// What the hardware counts to (PTX ISA, "mbarrier: Supported operations").
constexpr int kMaxCount = (1 << 20) - 1;
/// What an initialised barrier's memory holds: an ordinary store into it shows.
constexpr std::uint64_t kWord = 0x6d62617272696572;

std::string count_of(std::int64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Starts a primitive of the calling thread on a barrier that must exist.
MBarrierState& enter(Fiber& me, const char* name, MBarrier& barrier, Location loc, void* caller) {
  me.at = {.name = name, .loc = loc};
  {
    const tsan::Frame frame(caller);
    tsan::read(&barrier, sizeof barrier);
  }
  const tsan::Quiet quiet;
  MBarrierState* state = me.block.async().barriers.find(&barrier);
  if (state == nullptr) fail(me, me.at, "the mbarrier has not been initialised");
  std::uint64_t word = 0;
  raw_copy(&word, &barrier, sizeof word);
  if (word != kWord) {
    fail(me, me.at, describe(*state) + ", has been overwritten by ordinary stores");
  }
  return *state;
}

void settle(Fiber& me, MBarrierState& state) {
  const std::string error = me.block.async().barriers.settle(me.block, state);
  if (!error.empty()) fail(me, me.at, error);
}

void expect(Fiber& me, MBarrierState& state, int bytes) {
  if (bytes < 0 || bytes > kMaxCount || state.bytes + bytes > kMaxCount) {
    fail(me, me.at, "expects " + std::to_string(bytes) + " bytes: 0 to 2^20 - 1 in a phase");
  }
  state.bytes += bytes;
}

void arrive(Fiber& me, MBarrierState& state) {
  if (state.pending == 0) {
    fail(me, me.at,
         "more than " + count_of(state.count, "arrival") + " in phase " +
             std::to_string(state.phase) + " of " + describe(state) + ", which still waits for " +
             count_of(state.bytes, "byte"));
  }
  --state.pending;
}

}  // namespace

std::string describe(const MBarrierState& state) {
  return "the mbarrier at byte " + std::to_string(state.offset) +
         " of shared memory, initialised at " + describe(state.initialised);
}

MBarrierState* MBarriers::find(const MBarrier* at) {
  for (auto& state : states_) {
    if (state->at == at) return state.get();
  }
  return nullptr;
}

const MBarrierState* MBarriers::find_inside(std::size_t offset, std::size_t bytes) const {
  for (const auto& state : states_) {
    if (state->offset - offset < bytes) return state.get();
  }
  return nullptr;
}

MBarrierState& MBarriers::add(const MBarrier* at) {
  states_.push_back(std::make_unique<MBarrierState>());
  states_.back()->at = at;
  return *states_.back();
}

void MBarriers::fence(int thread) {
  for (auto& state : states_) state->fenced = state->fenced || state->initialiser == thread;
}

const TmaTransfer* MBarriers::find_landed(std::size_t offset) const {
  for (const auto& state : states_) {
    for (const TmaTransfer& transfer : state->landed) {
      if (transfer.covers(offset)) return &transfer;
    }
  }
  return nullptr;
}

std::string MBarriers::settle(Block& block, MBarrierState& state) {
  if (state.pending > 0 || state.bytes > 0) return "";
  if (state.bytes < 0) {
    return count_of(-state.bytes, "byte") + " more than expected landed in phase " +
           std::to_string(state.phase) + " of " + describe(state);
  }
  const std::string error = block.async().loads.show(block, state.landed);
  state.landed.clear();
  const std::uint64_t ended = state.phase++;
  state.pending = state.count;
  for (const auto& waiter : state.waiters) {
    if (waiter.phase == ended) block.make_ready(*waiter.fiber);
  }
  std::erase_if(state.waiters, [&](const auto& waiter) { return waiter.phase == ended; });
  return error;
}

std::string MBarriers::unfinished(const MBarrierState& state) {
  if (state.bytes != 0) {
    const bool more = state.bytes < 0;
    return "phase " + std::to_string(state.phase) + " of " + describe(state) + ", ends with " +
           count_of(more ? -state.bytes : state.bytes, "byte") +
           (more ? " more landed than expected" : " expected that never landed");
  }
  if (state.waited < state.loaded) {
    return "nobody has waited for the TMA load issued at " + describe(state.last_load) +
           ", phase " + std::to_string(state.loaded - 1) + " of " + describe(state);
  }
  return "";
}

std::string MBarriers::unfinished() const {
  for (const auto& state : states_) {
    if (std::string what = unfinished(*state); !what.empty()) return what;
  }
  return "";
}

std::string MBarriers::describe_waits() const {
  std::string text;
  for (const auto& state : states_) {
    if (state->waiters.empty()) continue;
    const auto waits = [&](int thread) {
      return std::any_of(state->waiters.begin(), state->waiters.end(),
                         [thread](const auto& waiter) { return waiter.fiber->thread == thread; });
    };
    text += "; " + describe_threads(kMaxThreads, waits) + " wait for phase " +
            std::to_string(state->phase) + " (parity " + std::to_string(state->parity()) + ") of " +
            describe(*state) + ", which lacks " + count_of(state->pending, "arrival") + " of " +
            std::to_string(state->count) + " and " + count_of(state->bytes, "byte");
  }
  return text;
}

void mbarrier_init(MBarrier& barrier, int count, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "mbarrier_init", .loc = loc};
  if (!me.block.shared().contains(&barrier, sizeof barrier) ||
      reinterpret_cast<std::uintptr_t>(&barrier) % alignof(MBarrier) != 0) {
    fail(me, me.at, "the mbarrier is not in the block's shared memory, aligned to 8 bytes");
  }
  if (count < 1 || count > kMaxCount) {
    fail(me, me.at, std::to_string(count) + " arrivals: 1 to 2^20 - 1");
  }
  {
    const tsan::Frame frame(__builtin_return_address(0));
    tsan::write(&barrier, sizeof barrier);
  }
  const tsan::Quiet quiet;
  MBarriers& all = me.block.async().barriers;
  if (const MBarrierState* before = all.find(&barrier); before != nullptr) {
    fail(me, me.at, describe(*before) + ", is in use");
  }
  MBarrierState& state = all.add(&barrier);
  state.offset = me.block.shared().offset_of(&barrier);
  state.initialised = loc;
  state.initialiser = me.thread;
  state.count = count;
  state.pending = count;
  raw_copy(&barrier, &kWord, sizeof kWord);
  // Opaque: no ordinary access is right.
  asan::poison(&barrier, sizeof barrier);
  me.block.preempt(me);
}

void fence_mbarrier_init(Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "fence_mbarrier_init", .loc = loc};
  const tsan::Quiet quiet;
  me.block.async().barriers.fence(me.thread);
  me.block.preempt(me);
}

void mbarrier_arrive(MBarrier& barrier, Location loc) {
  Fiber& me = current_fiber();
  MBarrierState& state = enter(me, "mbarrier_arrive", barrier, loc, __builtin_return_address(0));
  tsan::release(state.token());
  const tsan::Quiet quiet;
  arrive(me, state);
  settle(me, state);
  me.block.preempt(me);
}

void mbarrier_arrive_expect_tx(MBarrier& barrier, int bytes, Location loc) {
  Fiber& me = current_fiber();
  MBarrierState& state =
      enter(me, "mbarrier_arrive_expect_tx", barrier, loc, __builtin_return_address(0));
  tsan::release(state.token());
  const tsan::Quiet quiet;
  expect(me, state, bytes);
  arrive(me, state);
  settle(me, state);
  me.block.preempt(me);
}

void mbarrier_wait(MBarrier& barrier, int parity, Location loc) {
  Fiber& me = current_fiber();
  MBarrierState& state = enter(me, "mbarrier_wait", barrier, loc, __builtin_return_address(0));
  const tsan::Quiet quiet;
  if (parity != 0 && parity != 1) {
    fail(me, me.at, "parity " + std::to_string(parity) + ": 0 or 1");
  }
  if (state.parity() == parity) {
    const std::uint64_t phase = state.phase;
    state.waiters.push_back({&me, phase});
    me.block.suspend(me);
    // Hardware asks from time to time whether the phase has ended: with the next one over too, it
    // may never see that.
    if (state.phase > phase + 1) {
      fail(me, me.at,
           "phase " + std::to_string(phase + 1) + " of " + describe(state) +
               ", ended before this thread saw the end of phase " + std::to_string(phase));
    }
    state.waited = std::max(state.waited, phase + 1);
  } else {
    state.waited = std::max(state.waited, state.phase);
    me.block.preempt(me);
  }
  tsan::acquire(&state.tokens[parity]);
}

}  // namespace gpu::host

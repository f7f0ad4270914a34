// Proxy fences, setmaxnreg, elect.sync.
#include "gpu/host/memory/warpgroup.hpp"

#include <algorithm>
#include <string>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/memory/async_units.hpp"
#include "gpu/host/memory/global_stores.hpp"
#include "gpu/host/memory/register_file.hpp"

namespace gpu::host {
namespace {

/// Registers of a multiprocessor, and of a thread at most (CUDA C++ Programming Guide, "Technical
/// Specifications"); allocation is by 8 a thread.
constexpr int kRegisters = 65536;
constexpr int kMaxPerThread = 256;
constexpr int kUnit = 8;
constexpr int kWarpsPerGroup = 4;

/// One lane's part in setmaxnreg.
struct Request {
  int registers;
  bool increase;
  std::string error;
};

void apply(Warp& warp) {
  auto& mine = *static_cast<Request*>(warp.arguments[0]);
  Block& block = warp.fibers[0]->block;
  mine.error =
      block.async().registers.request(block, warp.fibers[0]->warp, mine.registers, mine.increase);
  if (!mine.error.empty()) fail(*warp.fibers[0], warp.at, mine.error);
}

void no_action(Warp&) {}

}  // namespace

void RegisterFile::reset(const Launch& launch) {
  const int warps = launch.threads / kLanesPerWarp;
  const int per_thread = kRegisters / (launch.threads * std::max(1, launch.min_blocks));
  warps_.assign(static_cast<std::size_t>(warps),
                {.registers = std::min(kMaxPerThread, per_thread / kUnit * kUnit)});
  waiters_.clear();
  free_ = 0;
}

std::string RegisterFile::request(Block& block, int warp, int registers, bool increase) {
  const auto end = (warp / kWarpsPerGroup + 1) * kWarpsPerGroup;
  if (static_cast<std::size_t>(end) > warps_.size()) return "the warp is in no whole warpgroup";
  PerWarp& mine = warps_[warp];
  if (increase ? registers < mine.registers : registers > mine.registers) {
    return std::string(increase ? "increases" : "decreases") + " to " + std::to_string(registers) +
           " registers a thread, but the warp has " + std::to_string(mine.registers);
  }
  if (increase) {
    mine.wanted = registers;
  } else {
    free_ += (mine.registers - registers) * kLanesPerWarp;
    mine.registers = registers;
  }
  grant(block);
  return "";
}

void RegisterFile::grant(Block& block) {
  for (PerWarp& warp : warps_) {
    const int needed = (warp.wanted - warp.registers) * kLanesPerWarp;
    if (warp.wanted == 0 || needed > free_) continue;
    free_ -= needed;
    warp.registers = warp.wanted;
    warp.wanted = 0;
  }
  for (Fiber* fiber : waiters_) {
    if (granted(fiber->warp)) block.make_ready(*fiber);
  }
  std::erase_if(waiters_, [this](const Fiber* fiber) { return granted(fiber->warp); });
}

std::string RegisterFile::unfinished() const {
  for (std::size_t warp = 0; warp < warps_.size(); ++warp) {
    const std::size_t first = warp / kWarpsPerGroup * kWarpsPerGroup;
    if (warps_[warp].registers != warps_[first].registers) {
      return "setmaxnreg is for whole warpgroups, but warp " + std::to_string(first) +
             " ends with " + std::to_string(warps_[first].registers) +
             " registers a thread and warp " + std::to_string(warp) + " with " +
             std::to_string(warps_[warp].registers);
    }
  }
  return "";
}

void fence_proxy_async(Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "fence_proxy_async", .loc = loc};
  const tsan::Quiet quiet;
  me.block.shared().publish();
  me.block.async().barriers.fence(me.thread);
  me.block.preempt(me);
}

void fence_proxy_async_global(Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "fence_proxy_async_global", .loc = loc};
  const tsan::Quiet quiet;
  // Not everybody's, as with shared memory: stores of other blocks, which no barrier orders, would
  // be published by any fence that happens to come after them.
  me.block.global_stores().publish(me);
  me.block.preempt(me);
}

void setmaxnreg(int registers, bool increase, Location loc) {
  Fiber& me = current_fiber();
  Request mine{.registers = registers, .increase = increase, .error = {}};
  const Operation operation{.name = increase ? "setmaxnreg_inc" : "setmaxnreg_dec", .loc = loc};
  me.block.collective(me, operation, apply, &mine);
  const tsan::Quiet quiet;
  RegisterFile& file = me.block.async().registers;
  if (file.granted(me.warp)) return;
  file.add_waiter(me);
  me.block.suspend(me);
}

bool elect_one(Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "elect_one", .loc = loc}, no_action, nullptr);
  return me.lane == me.block.async().elected_lane;
}

}  // namespace gpu::host

// Words for what threads were doing when something went wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/host/executor/block.hpp"

namespace gpu::host {

/// "stage_c.cuh:120"
std::string describe(Location loc);
/// "named_barrier_sync(1, 96) at ring.cuh:31"
std::string describe(const Operation& operation);
/// "thread 33 (warp 1, lane 1)"
std::string describe(const Lane& lane);
/// "block (1, 0, 0)"
std::string describe_block(uint3 index);
/// "lanes 0-3, 8"
std::string describe_lanes(std::uint32_t mask);

/// The threads of a block by the primitive each is at, those that have exited apart:
/// "threads 0-63 at sync_block a.cuh:12; threads 64-127 exited"
std::string describe(const std::vector<std::unique_ptr<Fiber>>& fibers, int threads);

/// "threads 0-3, 8" of those for which `chosen` holds.
std::string describe_threads(int threads, const std::function<bool(int)>& chosen);

/// "threads 0-63" of the warps in the mask.
std::string describe_warps(std::uint32_t mask);

/// Reports that `me` called `operation`, which is wrong in the given way.
[[noreturn]] void fail(const Fiber& me, const Operation& operation, const std::string& what);

}  // namespace gpu::host

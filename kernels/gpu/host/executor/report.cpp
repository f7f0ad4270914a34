#include "gpu/host/executor/report.hpp"

#include <algorithm>

namespace gpu::host {

std::string describe(Location loc) {
  return std::string(loc.file_name()) + ":" + std::to_string(loc.line());
}

std::string describe(const Operation& operation) {
  if (operation.name == nullptr) return "the kernel's start";
  std::string text = operation.name;
  if (operation.barrier != Operation::kWholeBlock && operation.barrier != Operation::kNoBarrier) {
    text +=
        "(" + std::to_string(operation.barrier) + ", " + std::to_string(operation.threads) + ")";
  }
  return text + " at " + describe(operation.loc);
}

std::string describe(const Lane& lane) {
  return "thread " + std::to_string(lane.thread) + " (warp " + std::to_string(lane.warp) +
         ", lane " + std::to_string(lane.lane) + ")";
}

std::string describe_block(uint3 index) {
  return "block (" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

namespace {

/// "0-3, 8" of 0 to count - 1.
std::string ranges(int count, const std::function<bool(int)>& chosen) {
  std::string text;
  for (int first = 0; first < count; ++first) {
    if (!chosen(first)) continue;
    int last = first;
    while (last + 1 < count && chosen(last + 1)) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return text;
}

}  // namespace

std::string describe_lanes(std::uint32_t mask) {
  return "lanes " + ranges(kLanesPerWarp, [mask](int lane) { return (mask >> lane & 1) != 0; });
}

std::string describe_threads(int threads, const std::function<bool(int)>& chosen) {
  return "threads " + ranges(threads, chosen);
}

std::string describe_warps(std::uint32_t mask) {
  return describe_threads(kMaxThreads,
                          [mask](int t) { return (mask >> t / kLanesPerWarp & 1) != 0; });
}

std::string describe(const std::vector<std::unique_ptr<Fiber>>& fibers, int threads) {
  std::string text;
  std::vector<bool> told(static_cast<std::size_t>(threads), false);
  for (int t = 0; t < threads; ++t) {
    if (told[t]) continue;
    const Fiber& first = *fibers[t];
    const auto alike = [&](int i) {
      const Fiber& other = *fibers[i];
      return first.exited == other.exited && (first.exited || first.at == other.at);
    };
    for (int i = t; i < threads; ++i) told[i] = told[i] || alike(i);
    if (!text.empty()) text += "; ";
    text += describe_threads(threads, alike) +
            (first.exited ? std::string(" have exited") : " wait in " + describe(first.at));
  }
  return text;
}

void fail(const Fiber& me, const Operation& operation, const std::string& what) {
  throw KernelError(describe(me) + ": " + describe(operation) + ": " + what);
}

}  // namespace gpu::host

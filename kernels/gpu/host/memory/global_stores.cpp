#include "gpu/host/memory/global_stores.hpp"

#include <algorithm>
#include <thread>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/executor/units.hpp"
#include "gpu/host/memory/tma_transfer.hpp"

namespace gpu::host {
namespace {

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

std::shared_ptr<GlobalStores> make_global_stores() { return std::make_shared<GlobalStores>(); }

/// No mutex: ThreadSanitizer would take it for an order between the kernel's threads.
class GlobalStores::Lock {
 public:
  explicit Lock(GlobalStores& stores) : locked_(stores.locked_) {
    while (__atomic_test_and_set(&locked_, __ATOMIC_ACQUIRE)) std::this_thread::yield();
  }
  ~Lock() { __atomic_clear(&locked_, __ATOMIC_RELEASE); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  bool& locked_;
};

void GlobalStores::add(Fiber& me, const void* address, Location loc) {
  const tsan::Quiet quiet;
  const std::uintptr_t at = number_of(address);
  me.unfenced.push_back(at);
  any_.store(true, std::memory_order_relaxed);
  const Lock lock(*this);
  first_ = stores_.empty() ? at : std::min(first_, at);
  last_ = stores_.empty() ? at : std::max(last_, at);
  stores_.insert_or_assign(at, Store{&me, me.thread, me.block_idx, loc});
  count_.store(stores_.size(), std::memory_order_relaxed);
}

void GlobalStores::publish(Fiber& me) {
  me.has_acquired = false;
  if (me.unfenced.empty()) return;
  const tsan::Quiet quiet;
  const Lock lock(*this);
  for (const std::uintptr_t at : me.unfenced) {
    const auto store = stores_.find(at);
    if (store != stores_.end() && store->second.by == &me) stores_.erase(store);
  }
  me.unfenced.clear();
  count_.store(stores_.size(), std::memory_order_relaxed);
}

std::string GlobalStores::find(const Fiber& me, const TmaTransfer& load) {
  if (me.has_acquired && any_.load(std::memory_order_relaxed)) {
    return "reads global memory after a load_acquire or wait_for_word with no "
           "fence_proxy_async_global after that, in a launch that stores by store_global_16";
  }
  if (count_.load(std::memory_order_relaxed) == 0) return "";
  const tsan::Quiet quiet;
  const Lock lock(*this);
  const Store* found = nullptr;
  load.for_each_chunk([&](const BoxChunk& chunk) {
    if (found != nullptr || chunk.first == chunk.last) return;
    const std::uintptr_t end = number_of(chunk.global + chunk.last);
    std::uintptr_t at = number_of(chunk.global + chunk.first) / kChunkBytes * kChunkBytes;
    for (; found == nullptr && at < end; at += kChunkBytes) {
      if (at < first_ || at > last_) continue;
      const auto store = stores_.find(at);
      if (store != stores_.end()) found = &store->second;
    }
  });
  if (found == nullptr) return "";
  return "reads global memory that thread " + std::to_string(found->thread) + " of " +
         describe_block(found->block) + " wrote by store_global_16 at " + describe(found->loc) +
         " with no fence_proxy_async_global after it";
}

void note_acquire() {
  if (current_lane != nullptr) current_fiber().has_acquired = true;
}

void store_global_16(const void* address, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "store_global_16", .loc = loc};
  if (number_of(address) % kChunkBytes != 0) {
    fail(me, me.at, "misaligned destination: not a multiple of 16 bytes");
  }
  me.block.global_stores().add(me, address, loc);
}

}  // namespace gpu::host

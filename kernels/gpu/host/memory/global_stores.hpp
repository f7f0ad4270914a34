// What threads have written to global memory and not fenced for the async proxy: see
// gpu/global_store.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host {

struct Fiber;
struct TmaTransfer;

/// Those of one launch: its end is a kernel boundary, which needs no fence. Its OS threads share
/// them.
class GlobalStores {
 public:
  /// `me` writes 16 bytes at `address`, a multiple of 16. Of two threads that write the same bytes
  /// the last one counts.
  void add(Fiber& me, const void* address, Location loc);
  /// The async proxy sees what `me` has written.
  void publish(Fiber& me);
  /// In words, why the async proxy may not see a store: one into what `load` of `me` reads that its
  /// thread has not fenced; or any, where `me` has acquired others' words and not fenced since.
  /// Else empty.
  std::string find(const Fiber& me, const TmaTransfer& load);

 private:
  struct Store {
    const Fiber* by;
    int thread;
    uint3 block;
    Location loc;
  };
  class Lock;

  std::atomic<bool> any_{false};       ///< have there been in this launch
  std::atomic<std::size_t> count_{0};  ///< of stores_: loads ask for it, and mostly find none
  bool locked_ = false;
  std::unordered_map<std::uintptr_t, Store> stores_;  ///< by address
  std::uintptr_t first_ = 0;                          ///< all of stores_ lie from here
  std::uintptr_t last_ = 0;                           ///< to here
};

/// What comes before the store itself, which is left to the caller, where sanitizers see it.
void store_global_16(const void* address, Location loc);

}  // namespace gpu::host

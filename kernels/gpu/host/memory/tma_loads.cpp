// TMA loads: in flight, landed, shown.
#include "gpu/host/memory/tma_loads.hpp"

#include <utility>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/memory/async_units.hpp"

namespace gpu::host {
namespace {

constexpr unsigned char kPoisonByte = 0xFF;
constexpr Chunk kPoison{~std::uint64_t{0}, ~std::uint64_t{0}};

}  // namespace

void TmaLoads::issue(Block& block, TmaTransfer transfer) {
  if (!block.lands_late()) {
    static_cast<void>(show(block, {std::move(transfer)}));
    return;
  }
  SharedMemory& shared = block.shared();
  shared.async_fill(transfer.shared_offset, kPoisonByte, transfer.bytes());
  asan::poison(shared.data() + transfer.shared_offset, transfer.bytes());
  transfers_.push_back(std::move(transfer));
  block.load_takes_off();
}

std::string TmaLoads::land(Block& block, std::size_t index) {
  TmaTransfer transfer = std::move(transfers_[index]);
  transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(index));
  block.load_has_landed();
  MBarrierState& state = *transfer.barrier;
  if (state.phase != transfer.phase) {
    return "the " + describe(transfer) + " lands after phase " + std::to_string(transfer.phase) +
           " of " + describe(state) + ", has ended: too few bytes were expected";
  }
  state.bytes -= static_cast<std::int64_t>(transfer.bytes());
  state.landed.push_back(std::move(transfer));
  return block.async().barriers.settle(block, state);
}

std::string TmaLoads::show(Block& block, const std::vector<TmaTransfer>& landed) const {
  SharedMemory& shared = block.shared();
  std::string error;
  for (const TmaTransfer& transfer : landed) {
    asan::unpoison(shared.data() + transfer.shared_offset, transfer.bytes());
    bool intact = true;
    transfer.for_each_chunk([&](const BoxChunk& chunk) {
      intact = intact && shared.load(chunk.shared_offset) == kPoison;
      Chunk bytes{};
      raw_copy(reinterpret_cast<char*>(&bytes) + chunk.first, chunk.global + chunk.first,
               static_cast<std::size_t>(chunk.last - chunk.first));
      shared.async_store(chunk.shared_offset, bytes);
    });
    if (!intact && block.lands_late()) {
      error = "the destination of the " + describe(transfer) +
              " was written while that load was in flight";
    }
  }
  return error;
}

std::string TmaLoads::unfinished() const {
  if (transfers_.empty()) return "";
  return "the block exits before the " + describe(transfers_.front()) +
         " has landed; wait for its mbarrier";
}

}  // namespace gpu::host

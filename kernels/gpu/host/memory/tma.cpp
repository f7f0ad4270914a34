// TMA: tensor maps, loads into shared memory, with and without a map.
#include "gpu/host/memory/tma.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/memory/async_units.hpp"
#include "gpu/host/memory/global_stores.hpp"
#include "gpu/host/memory/tma_transfer.hpp"
#include "gpu/mbarrier.hpp"

namespace gpu::host {
namespace {

/// Alignment of a box without a swizzle.
constexpr std::size_t kBoxAlignment = 128;

/// Of the innermost coordinate, in bytes.
constexpr int kInnerBytes = 16;

/// What the executor keeps in a TensorMap's bytes.
struct EncodedMap {
  static constexpr std::uint64_t kMagic = 0x74656e736f72206d;
  std::uint64_t magic;
  TensorShape shape;
};
static_assert(sizeof(EncodedMap) <= sizeof(TensorMap));

/// The shape in `map`, which must be a tensor map where the device would find it.
TensorShape decode(const Fiber& me, const TensorMap* map) {
  const Launch& launch = me.block.launch();
  const auto offset =
      reinterpret_cast<std::uintptr_t>(map) - reinterpret_cast<std::uintptr_t>(launch.params);
  if (offset > launch.params_bytes || sizeof(TensorMap) > launch.params_bytes - offset) {
    fail(me, me.at, "the tensor map is a copy: pass on the one in the kernel's Params");
  }
  EncodedMap encoded;
  std::memcpy(static_cast<void*>(&encoded), map->bytes.data(), sizeof encoded);
  if (encoded.magic != EncodedMap::kMagic) {
    fail(me, me.at, "the tensor map has not been encoded for this backend");
  }
  return encoded.shape;
}

TmaTransfer transfer_of(const Fiber& me, const TmaBox& box) {
  TmaTransfer transfer;
  transfer.shape = decode(me, box.map);
  if (transfer.shape.rank != box.rank) {
    fail(me, me.at,
         "the tensor map has rank " + std::to_string(transfer.shape.rank) +
             ", the instruction has " + std::to_string(box.rank));
  }
  if (!me.block.shared().contains(box.shared, transfer.bytes())) {
    fail(me, me.at,
         "the box of " + std::to_string(transfer.bytes()) +
             " bytes is not inside the block's shared memory");
  }
  // A device takes such an instruction for an illegal one.
  if (box.at[0] * transfer.shape.element_bytes % kInnerBytes != 0) {
    fail(me, me.at,
         "the box begins " + std::to_string(box.at[0] * transfer.shape.element_bytes) +
             " bytes into a row, which is not a multiple of " + std::to_string(kInnerBytes));
  }
  transfer.at = box.at;
  transfer.shared_offset = me.block.shared().offset_of(box.shared);
  transfer.thread = me.thread;
  transfer.name = me.at.name;
  transfer.loc = me.at.loc;
  const std::size_t alignment =
      transfer.shape.swizzle == Swizzle::kNone
          ? kBoxAlignment
          : std::size_t{8} * static_cast<std::size_t>(swizzle_bytes(transfer.shape.swizzle));
  if (transfer.shared_offset % alignment != 0) {
    fail(me, me.at,
         "the box in shared memory is not a multiple of " + std::to_string(alignment) + " bytes");
  }
  return transfer;
}

/// A row of bytes, all of it the box.
TmaTransfer row_of_bytes(const Fiber& me, void* shared, const void* global, std::uint32_t bytes) {
  if (bytes == 0 || bytes % kChunkBytes != 0) {
    fail(me, me.at,
         "a size of " + std::to_string(bytes) + " bytes is not a multiple of 16 above 0");
  }
  if (!me.block.shared().contains(shared, bytes)) {
    fail(me, me.at,
         "the copy of " + std::to_string(bytes) + " bytes is not inside the block's shared memory");
  }
  if (reinterpret_cast<std::uintptr_t>(shared) % kChunkBytes != 0) {
    fail(me, me.at, "misaligned destination: not a multiple of 16 bytes");
  }
  if (reinterpret_cast<std::uintptr_t>(global) % kChunkBytes != 0) {
    fail(me, me.at, "misaligned source: not a multiple of 16 bytes");
  }
  TmaTransfer transfer;
  transfer.shape.base = global;
  transfer.shape.rank = 1;
  transfer.shape.sizes[0] = bytes;
  transfer.shape.box[0] = bytes;
  transfer.shared_offset = me.block.shared().offset_of(shared);
  transfer.thread = me.thread;
  transfer.name = me.at.name;
  transfer.loc = me.at.loc;
  return transfer;
}

/// Issues a load whose operands, but for the barrier, are right. `caller`: where the kernel is.
void load(Fiber& me, TmaTransfer transfer, MBarrier& barrier, void* caller) {
  AsyncUnits& units = me.block.async();
  MBarrierState* state = units.barriers.find(&barrier);
  if (state == nullptr) fail(me, me.at, "the mbarrier has not been initialised");
  if (!state->fenced) {
    fail(me, me.at,
         describe(*state) +
             ", is not known to the async proxy: its initialiser calls "
             "fence_mbarrier_init");
  }
  if (const MBarrierState* covered =
          units.barriers.find_inside(transfer.shared_offset, transfer.bytes());
      covered != nullptr) {
    fail(me, me.at, "the destination covers " + describe(*covered));
  }
  if (const std::string error = me.block.global_stores().find(me, transfer); !error.empty()) {
    fail(me, me.at, error);
  }
  touch(transfer);
  me.tma.play(
      me.tsan_fiber,
      [&] {
        const tsan::Frame frame(caller);
        tsan::read(&barrier, sizeof barrier);
        transfer.for_each_chunk([](const BoxChunk& chunk) {
          tsan::read(chunk.global + chunk.first,
                     static_cast<std::size_t>(chunk.last - chunk.first));
        });
        tsan::write(me.block.shared().data() + transfer.shared_offset, transfer.bytes());
      },
      state->token(), me.block.end_token());
  const tsan::Quiet quiet;
  transfer.barrier = state;
  transfer.phase = state->phase;
  state->loaded = state->phase + 1;
  state->last_load = me.at.loc;
  const auto bytes = static_cast<std::int64_t>(transfer.bytes());
  units.loads.issue(me.block, std::move(transfer));
  if (!me.block.lands_late()) {
    state->bytes -= bytes;
    const std::string error = units.barriers.settle(me.block, *state);
    if (!error.empty()) fail(me, me.at, error);
  }
  me.block.preempt(me);
}

}  // namespace

void touch(const TmaTransfer& transfer) {
  if constexpr (kAsan) {
    transfer.for_each_chunk([](const BoxChunk& chunk) {
      for (int i = chunk.first; i < chunk.last; ++i) {
        static_cast<void>(static_cast<const volatile char*>(chunk.global)[i]);
      }
    });
  }
}

std::string describe(const TmaTransfer& transfer) {
  return std::string(transfer.name) + " that thread " + std::to_string(transfer.thread) +
         " issued at " + describe(transfer.loc);
}

void encode_tensor_map(const TensorShape& shape, TensorMap& map) {
  EncodedMap encoded{.magic = EncodedMap::kMagic, .shape = shape};
  map = {};
  std::memcpy(map.bytes.data(), static_cast<const void*>(&encoded), sizeof encoded);
}

std::uint32_t shared_address(const void* pointer, const char* name, Location loc) {
  Fiber& me = current_fiber();
  if (!me.block.shared().contains(pointer, 1)) {
    fail(me, {.name = name, .loc = loc}, "not an address in the block's shared memory");
  }
  return kFirstSharedAddress + static_cast<std::uint32_t>(me.block.shared().offset_of(pointer));
}

void tma_load(const TmaBox& box, MBarrier& barrier, const char* name, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = name, .loc = loc};
  load(me, transfer_of(me, box), barrier, __builtin_return_address(0));
}

void bulk_load(void* shared, const void* global, std::uint32_t bytes, MBarrier& barrier,
               Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "bulk_load", .loc = loc};
  load(me, row_of_bytes(me, shared, global, bytes), barrier, __builtin_return_address(0));
}

void prefetch_tensor_map(const TensorMap& map, Location loc) {
  Fiber& me = current_fiber();
  me.at = {.name = "prefetch_tensor_map", .loc = loc};
  static_cast<void>(decode(me, &map));
  me.block.preempt(me);
}

}  // namespace gpu::host

// Conformance kernels of what Hopper adds, but for wgmma.
#pragma once

#include "gpu/hopper.hpp"
#include "tests/gpu_model/conformance/base.cuh"
#include "tests/gpu_model/conformance/mma_kernels.cuh"
#include "tests/gpu_model/conformance/wgmma_kernels.cuh"

namespace conformance {
inline namespace GPU_BACKEND {

/// in: (kMBarrierTiles, kMBarrierConsumers) ints. out: an int per consumer, the sum over the tiles
/// of its neighbour's. A producer warp and three consumer warps around two buffers.
struct MBarrierShared {
  int buffer[2][kMBarrierConsumers];
  gpu::MBarrier full[2];
  gpu::MBarrier empty[2];
};
struct MBarrierRing : KernelBase<kLanes + kMBarrierConsumers, MBarrierShared> {
  static constexpr int kMinSmVersion = 90;

  GPU_FN static void produce(const int* in, Shared& sm) {
    for (int tile = 0; tile < kMBarrierTiles; ++tile) {
      const int stage = tile % 2;
      gpu::mbarrier_wait(sm.empty[stage], (tile / 2 + 1) % 2);
      for (int i = gpu::lane_idx(); i < kMBarrierConsumers; i += kLanes) {
        sm.buffer[stage][i] = in[tile * kMBarrierConsumers + i];
      }
      gpu::mbarrier_arrive(sm.full[stage]);
    }
  }

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    if (gpu::thread_idx() == 0) {
      for (int stage = 0; stage < 2; ++stage) {
        gpu::mbarrier_init(sm.full[stage], kLanes);
        gpu::mbarrier_init(sm.empty[stage], kMBarrierConsumers);
      }
    }
    gpu::sync_block();
    int sum = 0;
    const int consumer = gpu::thread_idx() - kLanes;
    if (consumer < 0) {
      produce(static_cast<const int*>(p.in), sm);
    } else {
      for (int tile = 0; tile < kMBarrierTiles; ++tile) {
        gpu::mbarrier_wait(sm.full[tile % 2], tile / 2 % 2);
        sum += sm.buffer[tile % 2][(consumer + 1) % kMBarrierConsumers];
        gpu::mbarrier_arrive(sm.empty[tile % 2]);
      }
      static_cast<int*>(p.out)[consumer] = sum;
    }
  }
};

/// in, out: an int per thread. In each round one thread in kArriveIfEvery hands its value over and
/// counts; all wait, and add what they find.
struct ArriveIfShared {
  int buffer[kArriveIfCount];
  gpu::MBarrier written;
};
struct MBarrierArriveIf : KernelBase<kArriveIfThreads, ArriveIfShared> {
  static constexpr int kMinSmVersion = 90;

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    const int t = gpu::thread_idx();
    const int place = t / kArriveIfEvery;
    int value = static_cast<const int*>(p.in)[t];
    if (t == 0) gpu::mbarrier_init(sm.written, kArriveIfCount);
    gpu::sync_block();
    for (int round = 0; round < kArriveIfRounds; ++round) {
      const bool counts = t % kArriveIfEvery == round % kArriveIfEvery;
      if (counts) sm.buffer[place] = value;
      gpu::mbarrier_arrive_if(counts, sm.written);
      gpu::mbarrier_wait(sm.written, round % 2);
      value += sm.buffer[(place + 1) % kArriveIfCount];
      gpu::sync_block();
    }
    static_cast<int*>(p.out)[t] = value;
  }
};

struct TmaParams {
  Buffers buffers;
  gpu::TensorMap maps[kTmaCount];
};
struct TmaShared {
  alignas(1024) unsigned char box[kTmaBoxSlot];
  gpu::MBarrier landed;
};

GPU_FN constexpr int tma_box_bytes(int config) {
  const TmaConfig& c = kTmaConfigs[config];
  return c.element_bytes * c.box[0] * c.box[1] * c.box[2] * c.box[3];
}

/// in: a tensor of each config, all at the start. out: kTmaBoxSlot bytes a config, its box as it
/// lies in shared memory.
struct TmaLoad : KernelBase<kTmaThreads, TmaShared> {
  using Params = TmaParams;
  static constexpr int kMinSmVersion = 90;
  static constexpr bool kOnlySm90a = true;

  template <int kConfig>
  GPU_FN static void load(const Params& p, Shared& sm) {
    constexpr TmaConfig kC = kTmaConfigs[kConfig];
    if (gpu::thread_idx() == 0) {
      gpu::prefetch_tensor_map(p.maps[kConfig]);
      gpu::mbarrier_arrive_expect_tx(sm.landed, tma_box_bytes(kConfig));
      if constexpr (kC.rank == 2) {
        gpu::tma_load_2d(sm.box, p.maps[kConfig], sm.landed, kC.at[0], kC.at[1]);
      } else if constexpr (kC.rank == 3) {
        gpu::tma_load_3d(sm.box, p.maps[kConfig], sm.landed, kC.at[0], kC.at[1], kC.at[2]);
      } else {
        gpu::tma_load_4d(sm.box, p.maps[kConfig], sm.landed, kC.at[0], kC.at[1], kC.at[2],
                         kC.at[3]);
      }
    }
    gpu::mbarrier_wait(sm.landed, kConfig % 2);
    auto* out = static_cast<unsigned char*>(p.buffers.out) + kConfig * kTmaBoxSlot;
    for (int i = gpu::thread_idx(); i < tma_box_bytes(kConfig); i += kTmaThreads) {
      out[i] = sm.box[i];
    }
    gpu::sync_block();
  }

  template <int... kConfigs>
  GPU_FN static void load_all(const Params& p, Shared& sm,
                              std::integer_sequence<int, kConfigs...>) {
    (load<kConfigs>(p, sm), ...);
  }

  GPU_FN static void run(const Params& p, Shared& sm) {
    if (gpu::thread_idx() == 0) {
      gpu::mbarrier_init(sm.landed, 1);
      gpu::fence_mbarrier_init();
    }
    gpu::sync_block();
    load_all(p, sm, std::make_integer_sequence<int, kTmaCount>{});
  }
};

/// in: kBulkIn bytes. out: kBulkOut bytes a round, shared memory with all copies among bytes of the
/// round's number.
struct BulkShared {
  alignas(16) unsigned char bytes[kBulkOut];
  gpu::MBarrier landed;
};
struct BulkLoad : KernelBase<kBulkThreads, BulkShared> {
  static constexpr int kMinSmVersion = 90;

  template <int kCopy>
  GPU_FN static void copy(const Buffers& p, Shared& sm) {
    constexpr BulkCopy kC = kBulkCopies[kCopy];
    gpu::bulk_load(sm.bytes + kC.to, static_cast<const unsigned char*>(p.in) + kC.from, kC.bytes,
                   sm.landed);
  }

  template <int... kCopies>
  GPU_FN static void copy_all(const Buffers& p, Shared& sm,
                              std::integer_sequence<int, kCopies...>) {
    gpu::mbarrier_arrive_expect_tx(sm.landed, kBulkBytes);
    (copy<kCopies>(p, sm), ...);
  }

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    if (gpu::thread_idx() == 0) {
      gpu::mbarrier_init(sm.landed, 1);
      gpu::fence_mbarrier_init();
    }
    auto* out = static_cast<unsigned char*>(p.out);
    for (int round = 0; round < kBulkRounds; ++round) {
      for (int i = gpu::thread_idx(); i < kBulkOut; i += kBulkThreads) {
        sm.bytes[i] = static_cast<unsigned char>(round);
      }
      gpu::fence_proxy_async();
      gpu::sync_block();
      if (gpu::thread_idx() == 0) {
        copy_all(p, sm, std::make_integer_sequence<int, kBulkCount>{});
      }
      gpu::mbarrier_wait(sm.landed, round % 2);
      for (int i = gpu::thread_idx(); i < kBulkOut; i += kBulkThreads) {
        out[round * kBulkOut + i] = sm.bytes[i];
      }
      gpu::sync_block();
    }
  }
};

/// in: (kStoreRounds, kStoreBytes) bytes. out: what has been stored last, kStoreBytes; in each
/// round what a bulk copy has fetched of what all threads have stored there, each a chunk of in
/// from the end.
struct StoreShared {
  uint4 fetched[kStoreThreads];
  gpu::MBarrier landed;
};
struct GlobalStore : KernelBase<kStoreThreads, StoreShared> {
  static constexpr int kMinSmVersion = 90;

  GPU_FN static void run(const Buffers& p, Shared& sm) {
    const int t = gpu::thread_idx();
    if (t == 0) {
      gpu::mbarrier_init(sm.landed, 1);
      gpu::fence_mbarrier_init();
    }
    auto* const out = static_cast<uint4*>(p.out);
    for (int round = 0; round < kStoreRounds; ++round) {
      const uint4* const in = static_cast<const uint4*>(p.in) + round * kStoreThreads;
      gpu::store_global_16(out + t, in[kStoreThreads - 1 - t]);
      gpu::fence_proxy_async_global();
      gpu::sync_block();
      if (t == 0) {
        gpu::mbarrier_arrive_expect_tx(sm.landed, kStoreBytes);
        gpu::bulk_load(sm.fetched, out, kStoreBytes, sm.landed);
      }
      gpu::mbarrier_wait(sm.landed, round % 2);
      out[(round + 1) * kStoreThreads + t] = sm.fetched[t];
      gpu::sync_block();
    }
  }
};

/// out: two ints per warp: the lanes elected in each of kElectRounds, and 1 if always the same one.
struct ElectOne : KernelBase<kElectThreads> {
  static constexpr int kMinSmVersion = 90;

  GPU_FN static void run(const Buffers& p, Nothing&) {
    int elected = 0;
    for (int round = 0; round < kElectRounds; ++round) elected += gpu::elect_one() ? 1 : 0;
    int sum = elected;
    for (int mask = 16; mask > 0; mask /= 2) sum += gpu::shfl_xor(sum, mask);
    int* out = static_cast<int*>(p.out) + 2 * gpu::warp_idx();
    if (gpu::lane_idx() == 0) out[0] = sum;
    if (elected != 0) out[1] = elected == kElectRounds ? 1 : 0;
  }
};

/// out: an int per thread. One warpgroup gives registers to two others.
struct Setmaxnreg : KernelBase<kSetmaxnregThreads> {
  static constexpr int kMinSmVersion = 90;
  static constexpr bool kOnlySm90a = true;

  GPU_FN static void run(const Buffers& p, Nothing&) {
    int* out = static_cast<int*>(p.out) + gpu::thread_idx();
    if (gpu::warp_idx() < 4) {
      gpu::setmaxnreg_dec<40>();
      *out = gpu::thread_idx();
    } else {
      gpu::setmaxnreg_inc<232>();
      *out = -gpu::thread_idx();
    }
  }
};

/// A map of each config.
inline fp8_sdpa::Status encode_maps(TmaParams& params) {
  for (int i = 0; i < kTmaCount; ++i) {
    const TmaConfig& c = kTmaConfigs[i];
    gpu::TensorShape shape;
    shape.base = params.buffers.in;
    shape.element_bytes = c.element_bytes;
    shape.rank = c.rank;
    std::uint64_t stride = (static_cast<unsigned>(c.sizes[0] * c.element_bytes) + 15) / 16 * 16;
    for (int d = 0; d < c.rank; ++d) {
      shape.sizes[d] = static_cast<std::uint64_t>(c.sizes[d]);
      shape.box[d] = static_cast<std::uint32_t>(c.box[d]);
      if (d > 0) shape.strides[d] = stride;
      if (d > 0) stride *= shape.sizes[d];
    }
    if (c.swizzle_bytes == 32) shape.swizzle = gpu::Swizzle::k32B;
    if (c.swizzle_bytes == 64) shape.swizzle = gpu::Swizzle::k64B;
    if (c.swizzle_bytes == 128) shape.swizzle = gpu::Swizzle::k128B;
    if (auto status = gpu::encode_tensor_map(shape, params.maps[i]); !status.ok()) return status;
  }
  return {};
}

inline fp8_sdpa::Status launch_tma(const Buffers& b, const gpu::Queue& q) {
  TmaParams params{b, {}};
  const auto status = encode_maps(params);
  return status.ok() ? gpu::launch<TmaLoad>(dim3(1), params, q) : status;
}

inline fp8_sdpa::Status launch_hopper(Primitive primitive, const Buffers& b, const gpu::Queue& q) {
  switch (primitive) {
    case Primitive::kStmatrix: return gpu::launch<Stmatrix>(dim3(1), b, q);
    case Primitive::kMBarrier: return gpu::launch<MBarrierRing>(dim3(1), b, q);
    case Primitive::kMBarrierArriveIf: return gpu::launch<MBarrierArriveIf>(dim3(1), b, q);
    case Primitive::kTmaLoad: return launch_tma(b, q);
    case Primitive::kBulkLoad: return gpu::launch<BulkLoad>(dim3(1), b, q);
    case Primitive::kGlobalStore: return gpu::launch<GlobalStore>(dim3(1), b, q);
    case Primitive::kElectOne: return gpu::launch<ElectOne>(dim3(1), b, q);
    case Primitive::kSetmaxnreg: return gpu::launch<Setmaxnreg>(dim3(1), b, q);
    default: return launch_wgmma(primitive, b, q);
  }
}

}  // namespace GPU_BACKEND
}  // namespace conformance

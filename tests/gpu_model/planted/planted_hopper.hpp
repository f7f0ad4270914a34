// A Hopper kernel with a bug to choose: a producer warpgroup loads tiles by TMA into a ring,
// another multiplies them by wgmma, with A from shared memory and again from registers, and A by
// ones that it has stored itself, and halves its accumulators from tile to tile as a softmax would.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "gpu/hopper.hpp"

namespace planted {

enum class HopperBug {
  kNone,
  kNoInitFence,       ///< the async proxy does not know the mbarriers
  kNoInitBarrier,     ///< threads use mbarriers that may not be initialised yet
  kNoFullWait,        ///< the consumers do not wait for the loads
  kWrongFullParity,   ///< they wait for the phase before
  kNoEmptyWait,       ///< the producer does not wait for the consumers
  kNoEmptyArrive,     ///< the consumers do not tell it
  kArrivesTooOften,   ///< every lane of a warp does, where one is counted
  kReleasesTooEarly,  ///< they do before their multiplies have ended
  kNoSyncWarp,        ///< one lane does before the others have read
  kExpectsTooFew,     ///< bytes
  kExpectsTooMany,
  kNoWgmmaFence,      ///< after the accumulators have been halved
  kReadsTooEarly,     ///< the accumulators, before the wait
  kOverwritesA,       ///< in registers, before the wait
  kNoCommit,          ///< the wait asks for nothing
  kNoProxyFence,      ///< between ordinary stores and the multiplies that read them
  kNoBarrierToStore,  ///< the multiplies read what other threads are still writing
  kReusesSource,      ///< the ones are overwritten while a multiply may read them
};

inline constexpr int kHopperTiles = 6;
inline constexpr int kHopperStages = 2;
inline constexpr int kHopperM = 64;
inline constexpr int kHopperN = 16;
inline constexpr int kHopperK = 32;
/// A tile is A and B, one after the other.
inline constexpr int kHopperRows = kHopperM + kHopperN;
inline constexpr int kHopperTileBytes = kHopperRows * kHopperK;

struct HopperParams {
  gpu::TensorMap tiles;  ///< (kHopperTiles * kHopperRows, kHopperK) E4M3
  float* out;            ///< (kHopperM, kHopperN)
};

template <HopperBug kBug>
struct HopperRing {
  using Params = HopperParams;
  struct Shared {
    struct alignas(1024) Stage {
      unsigned char bytes[kHopperTileBytes];
    };
    Stage stage[kHopperStages];
    alignas(1024) std::uint32_t ones[kHopperN * kHopperK / 4];  ///< a second B: four codes a word
    gpu::MBarrier full[kHopperStages];
    gpu::MBarrier empty[kHopperStages];
  };
  static constexpr int kConsumers = 128;
  static constexpr int kProducers = 128;
  static constexpr int kThreads = kProducers + kConsumers;
  static constexpr int kMinBlocks = 1;

  GPU_FN static void init(Shared& sm) {
    if (gpu::thread_idx() == 0) {
      for (int i = 0; i < kHopperStages; ++i) {
        gpu::mbarrier_init(sm.full[i], 1);
        gpu::mbarrier_init(sm.empty[i], kConsumers / 32);
      }
      if constexpr (kBug != HopperBug::kNoInitFence) gpu::fence_mbarrier_init();
    }
    if constexpr (kBug != HopperBug::kNoInitBarrier) gpu::sync_block();
  }

  GPU_FN static void produce(const Params& p, Shared& sm) {
    if (gpu::thread_idx() != 0) return;
    constexpr int kSlack = kBug == HopperBug::kExpectsTooFew    ? -16
                           : kBug == HopperBug::kExpectsTooMany ? 16
                                                                : 0;
    for (int tile = 0; tile < kHopperTiles; ++tile) {
      const int stage = tile % kHopperStages;
      if constexpr (kBug != HopperBug::kNoEmptyWait) {
        gpu::mbarrier_wait(sm.empty[stage], (tile / kHopperStages + 1) % 2);
      }
      gpu::mbarrier_arrive_expect_tx(sm.full[stage], kHopperTileBytes + kSlack);
      gpu::tma_load_2d(sm.stage[stage].bytes, p.tiles, sm.full[stage], 0, tile * kHopperRows);
    }
  }

  /// This lane's part of A, by ordinary loads.
  GPU_FN static void load_a(const unsigned char* tile, std::uint32_t (&a)[4]) {
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * (gpu::warp_idx() % 4) + gpu::lane_idx() / 4 + 8 * (i % 2);
      const int k = 16 * (i / 2) + 4 * (gpu::lane_idx() % 4);
      const auto at =
          gpu::swizzled(static_cast<std::uint32_t>(row * kHopperK + k), gpu::Swizzle::k32B);
      a[i] = *reinterpret_cast<const std::uint32_t*>(tile + at);
    }
  }

  GPU_FN static void release(Shared& sm, int stage) {
    if constexpr (kBug == HopperBug::kNoEmptyArrive) return;
    // One lane speaks for the warp's ordinary loads.
    if constexpr (kBug != HopperBug::kNoSyncWarp) gpu::sync_warp();
    if (kBug == HopperBug::kArrivesTooOften || gpu::lane_idx() == 0) {
      gpu::mbarrier_arrive(sm.empty[stage]);
    }
  }

  GPU_FN static void write_ones(Shared& sm) {
    sm.ones[gpu::thread_idx() - kProducers] = 0x38383838;
    if constexpr (kBug != HopperBug::kNoProxyFence) gpu::fence_proxy_async();
    if constexpr (kBug != HopperBug::kNoBarrierToStore) gpu::named_barrier_sync(1, kConsumers);
  }

  GPU_FN static void multiply(const Params& p, Shared& sm, int tile, float (&d)[kHopperN / 2]) {
    using gpu::Fp8;
    const int stage = tile % kHopperStages;
    if constexpr (kBug != HopperBug::kNoFullWait) {
      const int parity = tile / kHopperStages % 2;
      gpu::mbarrier_wait(sm.full[stage], kBug == HopperBug::kWrongFullParity ? 1 - parity : parity);
    }
    const unsigned char* bytes = sm.stage[stage].bytes;
    std::uint32_t a[4];
    load_a(bytes, a);
    const auto rows = gpu::matrix_descriptor(bytes, 8 * kHopperK, 0, gpu::Swizzle::k32B);
    const auto columns = gpu::advance_descriptor(rows, kHopperM * kHopperK);
    if (tile > 0) {
      for (float& x : d) x *= 0.5F;
    }
    if (kBug != HopperBug::kNoWgmmaFence || tile == 0) gpu::wgmma_fence();
    gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, rows, columns, tile > 0);
    gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, a, columns, true);
    const auto ones = gpu::matrix_descriptor(sm.ones, 8 * kHopperK, 0, gpu::Swizzle::k32B);
    gpu::wgmma_m64k32<Fp8::kE4M3, Fp8::kE4M3>(d, rows, ones, true);
    if constexpr (kBug != HopperBug::kNoCommit) gpu::wgmma_commit();
    if constexpr (kBug == HopperBug::kReleasesTooEarly) release(sm, stage);
    if constexpr (kBug == HopperBug::kOverwritesA) a[0] = 0;
    if constexpr (kBug == HopperBug::kReusesSource) sm.ones[gpu::thread_idx() - kProducers] = 0;
    if constexpr (kBug == HopperBug::kReadsTooEarly) {
      if (tile == kHopperTiles - 1) store(p, d);
    }
    gpu::wgmma_wait<0>();
    if constexpr (kBug != HopperBug::kReleasesTooEarly) release(sm, stage);
  }

  GPU_FN static void store(const Params& p, const float (&d)[kHopperN / 2]) {
    for (int i = 0; i < kHopperN / 2; ++i) {
      const int row = 16 * (gpu::warp_idx() % 4) + gpu::lane_idx() / 4 + 8 * (i / 2 % 2);
      p.out[row * kHopperN + 8 * (i / 4) + 2 * (gpu::lane_idx() % 4) + i % 2] = d[i];
    }
  }

  GPU_FN static void run(const Params& p, Shared& sm) {
    init(sm);
    if (gpu::thread_idx() < kProducers) {
      produce(p, sm);
      return;
    }
    float d[kHopperN / 2];
    write_ones(sm);
    for (int tile = 0; tile < kHopperTiles; ++tile) multiply(p, sm, tile, d);
    if constexpr (kBug != HopperBug::kReadsTooEarly) store(p, d);
  }
};

/// Codes of 0, 1 and -1: all sums are exact, and so are their halves.
inline std::vector<unsigned char> hopper_input() {
  constexpr unsigned char kCodes[] = {0x00, 0x38, 0xb8};
  std::vector<unsigned char> in(static_cast<std::size_t>(kHopperTiles) * kHopperTileBytes);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = kCodes[i * i % 1009 % 3];
  return in;
}

inline std::vector<float> hopper_output(const std::vector<unsigned char>& in) {
  const auto value = [&](int tile, int row, int k) {
    const int code = in[(tile * kHopperRows + row) * kHopperK + k];
    return code == 0 ? 0.0F : code == 0x38 ? 1.0F : -1.0F;
  };
  std::vector<float> out(static_cast<std::size_t>(kHopperM) * kHopperN, 0.0F);
  for (int i = 0; i < kHopperM * kHopperN; ++i) {
    for (int tile = 0; tile < kHopperTiles; ++tile) {
      out[i] *= 0.5F;
      for (int k = 0; k < kHopperK; ++k) {
        out[i] += value(tile, i / kHopperN, k) * (2 * value(tile, kHopperM + i % kHopperN, k) + 1);
      }
    }
  }
  return out;
}

/// Whether the kernel ran without an error and gave the right output.
template <HopperBug kBug>
bool hopper_passes(const fp8_sdpa::ExecutorOptions& options) {
  const auto in = hopper_input();
  std::vector<float> out(static_cast<std::size_t>(kHopperM) * kHopperN, -1.0F);
  gpu::TensorShape tiles;
  tiles.base = in.data();
  tiles.sizes = {kHopperK, kHopperTiles * kHopperRows, 0, 0};
  tiles.strides = {0, kHopperK, 0, 0};
  tiles.box = {kHopperK, kHopperRows, 0, 0};
  tiles.swizzle = gpu::Swizzle::k32B;
  HopperParams params{};
  params.out = out.data();
  if (!gpu::encode_tensor_map(tiles, params.tiles).ok()) return false;
  const auto status = gpu::launch<HopperRing<kBug>>(dim3(1), params, {.executor = &options});
  return status.ok() && out == hopper_output(in);
}

}  // namespace planted

// store_global_16 on the host executor: which loads through the async proxy must come after a fence
// of the thread that stored.
#include <array>
#include <cstdint>
#include <cstring>

#include "tests/gpu_model/bulk_support.hpp"

namespace gpu_model::global_store {
namespace {

using fp8_sdpa::ExecutorOptions;

constexpr int kChunk = 16;
constexpr int kBytes = kPlaces;  // a chunk for each lane of a warp
constexpr int kLoaded = 208;

/// Global memory.
struct World {
  alignas(16) std::array<unsigned char, kBytes> bytes{};
  std::array<unsigned char, kBytes> seen{};
  std::uint32_t told = 0;
};

uint4 chunk_of(unsigned char byte) {
  uint4 chunk;
  std::memset(&chunk, byte, sizeof chunk);
  return chunk;
}

/// By thread 0, after all of its warp: fetches `bytes` from `from`, and waits.
void load(World& world, Place& sm, int from, int bytes, gpu::Loc loc = GPU_LOC) {
  gpu::sync_warp();
  if (gpu::thread_idx() == 0) {
    gpu::mbarrier_arrive_expect_tx(sm.full, static_cast<std::uint32_t>(bytes));
    gpu::bulk_load(sm.at, &world.bytes[from], static_cast<std::uint32_t>(bytes), sm.full, loc);
  }
  gpu::mbarrier_wait(sm.full, 0);
}

template <class Body>
Run on_a_warp(Body body) {
  return on_a_warp_with<World>(body);
}

constexpr auto kStoreWithoutFence = [](World& world, Place&) {
  gpu::store_global_16(&world.bytes[kChunk * gpu::lane_idx()], chunk_of(7));
};

TEST(GlobalStore, IsAnErrorToLoadWithNoFence) {
  const int line = __LINE__ + 3;
  expect_error_always(on_a_warp([](World& world, Place& sm) {
                        if (gpu::thread_idx() == 5) {
                          gpu::store_global_16(&world.bytes[kLoaded - kChunk], chunk_of(1));
                        }
                        load(world, sm, 0, kLoaded);
                      }),
                      {"block (0, 0, 0): thread 0 (warp 0, lane 0): bulk_load at",
                       at_line(line + 2) + ": reads global memory that thread 5 of block (0, 0, 0) "
                                           "wrote by store_global_16 at",
                       at_line(line) + " with no fence_proxy_async_global after it"});
}

TEST(GlobalStore, IsLoadedAfterAFenceOfItsThread) {
  for (const auto& options : adversaries(3)) {
    World world;
    const auto status = run_with(
        [](World& world, Place& sm) {
          const int lane = gpu::lane_idx();
          for (const int value : {1, 2}) {  // the same bytes twice
            gpu::store_global_16(&world.bytes[kChunk * lane],
                                 chunk_of(static_cast<unsigned char>(100 * value + lane)));
          }
          gpu::fence_proxy_async_global();
          load(world, sm, 0, kBytes);
          std::memcpy(&world.seen[kChunk * lane], sm.at + kChunk * lane, kChunk);
        },
        world, options);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < kBytes; ++i) EXPECT_EQ(world.seen[i], 200 + i / kChunk) << "byte " << i;
  }
}

TEST(GlobalStore, IsNotPublishedByAFenceOfAnotherThread) {
  expect_error_always(on_a_warp([](World& world, Place& sm) {
                        if (gpu::thread_idx() == 5) {
                          gpu::store_global_16(world.bytes.data(), chunk_of(1));
                        }
                        gpu::sync_warp();
                        if (gpu::thread_idx() != 5) gpu::fence_proxy_async_global();
                        load(world, sm, 0, kLoaded);
                      }),
                      {"bulk_load", "thread 5 of block (0, 0, 0)", "fence_proxy_async_global"});
}

TEST(GlobalStore, IsNotPublishedByAFenceOfSharedMemory) {
  expect_error_always(on_a_warp([](World& world, Place& sm) {
                        gpu::store_global_16(&world.bytes[kChunk * gpu::lane_idx()], chunk_of(1));
                        gpu::fence_proxy_async();
                        load(world, sm, 0, kLoaded);
                      }),
                      {"bulk_load", "store_global_16", "fence_proxy_async_global"});
}

TEST(GlobalStore, IsNotPublishedByAFenceBeforeIt) {
  expect_error_always(on_a_warp([](World& world, Place& sm) {
                        gpu::fence_proxy_async_global();
                        if (gpu::thread_idx() == 0) {
                          gpu::store_global_16(world.bytes.data(), chunk_of(1));
                        }
                        load(world, sm, 0, kLoaded);
                      }),
                      {"bulk_load", "thread 0 of block (0, 0, 0)", "fence_proxy_async_global"});
}

TEST(GlobalStore, ConcernsItsOwnBytesAlone) {
  constexpr int kFrom = 48;
  for (const auto& options : adversaries(3)) {
    World world;
    const auto status = run_with(
        [](World& world, Place& sm) {
          if (gpu::thread_idx() == 3) {
            gpu::store_global_16(&world.bytes[kFrom - kChunk], chunk_of(1));
            gpu::store_global_16(&world.bytes[kFrom + kLoaded], chunk_of(1));
          }
          load(world, sm, kFrom, kLoaded);
        },
        world, options);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(GlobalStore, IsAnErrorForTensorMapsToo) {
  const int line = __LINE__ + 9;
  const gpu_model::Run run = [](const ExecutorOptions& options) {
    World world;
    return run_mapped<32, Place>(
        [](const gpu::TensorMap& map, void* data, Place& sm) {
          if (gpu::thread_idx() != 0) return;
          gpu::mbarrier_init(sm.full, 1);
          gpu::fence_mbarrier_init();
          auto& world = *static_cast<World*>(data);
          gpu::store_global_16(&world.bytes[3 * 64 + 32], chunk_of(1));
          gpu::mbarrier_arrive_expect_tx(sm.full, 2 * 64);
          gpu::tma_load_2d(sm.at, map, sm.full, 0, 2);
          gpu::mbarrier_wait(sm.full, 0);
        },
        byte_matrix(world.bytes.data(), kBytes / 64, 64, 2), &world, options);
  };
  expect_error_always(
      run, {"tma_load_2d", "store_global_16", at_line(line), "fence_proxy_async_global"});
}

TEST(GlobalStore, IsForgottenAtAKernelBoundary) {
  for (const auto& options : adversaries(2)) {
    World world;
    ASSERT_TRUE(run_with(kStoreWithoutFence, world, options).ok());
    const auto status = run_with(
        [](World& world, Place& sm) {
          load(world, sm, 0, kLoaded);
          world.seen[gpu::lane_idx()] = sm.at[gpu::lane_idx()];
        },
        world, options);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(world.seen[lane], 7);
  }
}

/// Of two launches one of which runs inside the other: what the first has stored needs no fence,
/// what the second stores itself does.
template <bool kFences>
struct Second {
  struct Params {
    World* first;
    World* own;
  };
  using Shared = Place;
  static constexpr int kThreads = 32;
  static constexpr int kMinBlocks = 1;
  static constexpr bool kUsesPdl = true;
  GPU_FN static void run(const Params& p, Shared& sm) {
    if (gpu::thread_idx() == 0) {
      gpu::mbarrier_init(sm.full, 1);
      gpu::fence_mbarrier_init();
    }
    gpu::store_global_16(&p.own->bytes[kChunk * gpu::lane_idx()], chunk_of(1));
    gpu::pdl_wait();
    if (kFences) gpu::fence_proxy_async_global();
    load(kFences ? *p.first : *p.own, sm, 0, kLoaded);
  }
};
struct First {
  struct Params {
    World* world;
  };
  using Shared = Place;
  static constexpr int kThreads = 32;
  static constexpr int kMinBlocks = 1;
  GPU_FN static void run(const Params& p, Shared& sm) { kStoreWithoutFence(*p.world, sm); }
};

TEST(GlobalStore, BelongsToItsLaunchWhereOneRunsInsideAnother) {
  for (const auto& options : adversaries(2)) {
    World first;
    World own;
    const gpu::Queue queue{.executor = &options};
    const auto fenced =
        gpu::launch_both<First, Second<true>>(dim3(1), {&first}, dim3(1), {&first, &own}, queue);
    EXPECT_TRUE(fenced.ok()) << fenced.message();
    const auto open =
        gpu::launch_both<First, Second<false>>(dim3(1), {&first}, dim3(1), {&first, &own}, queue);
    expect_kernel_error(open, {"bulk_load", "store_global_16", "fence_proxy_async_global"});
  }
}

/// Block 0 stores and tells; block 1 fences in every thread, and loads. By one OS thread block 0
/// has ended by then, and block 1 is played by its threads.
template <bool kFences, bool kLoaderFences = true>
void store_for_another_block(World& world, Place& sm) {
  if (gpu::block_idx().x == 0) {
    gpu::store_global_16(&world.bytes[kChunk * gpu::lane_idx()], chunk_of(9));
    if (kFences) gpu::fence_proxy_async_global();
    gpu::sync_warp();
    if (gpu::thread_idx() == 0) gpu::atomic_add_acq_rel(&world.told, 1);
    return;
  }
  if (gpu::thread_idx() == 0) gpu::wait_for_word(&world.told, 1);
  if (kLoaderFences) gpu::fence_proxy_async_global();
  load(world, sm, 0, kLoaded);
  world.seen[gpu::lane_idx()] = sm.at[gpu::lane_idx()];
}

TEST(GlobalStore, IsFencedByTheBlockThatStores) {
  for (int os_threads = 1; os_threads <= 2; ++os_threads) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      const ExecutorOptions options{.schedule = fp8_sdpa::Schedule::kFifo,
                                    .os_threads = os_threads};
      World world;
      const auto fenced = run_with(
          [](World& w, Place& sm) { store_for_another_block<true>(w, sm); }, world, options, 2);
      ASSERT_TRUE(fenced.ok()) << fenced.message();
      for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(world.seen[lane], 9);

      World unfenced;
      expect_kernel_error(
          run_with([](World& w, Place& sm) { store_for_another_block<false>(w, sm); }, unfenced,
                   options, 2),
          {"block (1, 0, 0)", "bulk_load", "of block (0, 0, 0)", "fence_proxy_async_global"});
    }
  }
}

TEST(GlobalStore, IsFencedByTheThreadThatHasBeenTold) {
  for (int os_threads = 1; os_threads <= 2; ++os_threads) {
    const ExecutorOptions options{.schedule = fp8_sdpa::Schedule::kFifo, .os_threads = os_threads};
    World world;
    expect_kernel_error(
        run_with([](World& w, Place& sm) { store_for_another_block<true, false>(w, sm); }, world,
                 options, 2),
        {"block (1, 0, 0)", "bulk_load", "wait_for_word", "no fence_proxy_async_global"});
  }
}

TEST(GlobalStore, RefusesMisalignedPlaces) {
  const int line = __LINE__ + 3;
  expect_error_always(on_a_warp([](World& world, Place&) {
                        if (gpu::thread_idx() == 2)
                          gpu::store_global_16(&world.bytes[8], chunk_of(1));
                      }),
                      {"thread 2", "store_global_16", at_line(line),
                       "misaligned destination: not a multiple of 16 bytes"});
}

}  // namespace
}  // namespace gpu_model::global_store

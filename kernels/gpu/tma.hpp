// Boxes of a tensor from global to shared memory, moved by the tensor memory accelerator: PTX
// ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Tensor copy". And plain
// bytes, without a tensor map: "Bulk copy".
//
// One thread issues for the whole block. A box is dense in shared memory, dimension 0 innermost,
// with its map's swizzle; `shared` is a multiple of 128 bytes, with a swizzle of 8 of its rows.
// Coordinates are of the box's first element, in elements, and may be negative; the innermost one
// lies at a multiple of 16 bytes: measured on an H200, which takes anything else for an illegal
// instruction.
#pragma once

#include "gpu/mbarrier.hpp"
#include "gpu/tensor_map.hpp"
#if !GPU_ON_DEVICE
#include "gpu/host/memory/tma.hpp"
#endif

namespace gpu {
inline namespace GPU_BACKEND {

#if GPU_ON_DEVICE
#define GPU_TMA_LOAD(RANK, COORDINATES, ...)                                                   \
  asm volatile("cp.async.bulk.tensor." RANK                                                    \
               ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" COORDINATES \
               "}], [%2];" ::"r"(shared_address(shared)),                                      \
               "l"(&map), "r"(shared_address(&barrier)), __VA_ARGS__                           \
               : "memory")
#endif

/// cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes (PTX ISA,
/// "cp.async.bulk.tensor"; sm_90): loads the box at (x, y), zeros outside the tensor. All of the
/// box's bytes, those too, count at `barrier` in the phase that runs now.
GPU_FN void tma_load_2d(void* shared, const TensorMap& map, MBarrier& barrier, int x, int y,
                        [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  GPU_TMA_LOAD("2d", "%3, %4", "r"(x), "r"(y));
#else
  host::tma_load({shared, &map, {x, y, 0, 0}, 2}, barrier, "tma_load_2d", loc);
#endif
}

/// cp.async.bulk.tensor.3d, likewise.
GPU_FN void tma_load_3d(void* shared, const TensorMap& map, MBarrier& barrier, int x, int y, int z,
                        [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  GPU_TMA_LOAD("3d", "%3, %4, %5", "r"(x), "r"(y), "r"(z));
#else
  host::tma_load({shared, &map, {x, y, z, 0}, 3}, barrier, "tma_load_3d", loc);
#endif
}

/// cp.async.bulk.tensor.4d, likewise.
GPU_FN void tma_load_4d(void* shared, const TensorMap& map, MBarrier& barrier, int x, int y, int z,
                        int w, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  GPU_TMA_LOAD("4d", "%3, %4, %5, %6", "r"(x), "r"(y), "r"(z), "r"(w));
#else
  host::tma_load({shared, &map, {x, y, z, w}, 4}, barrier, "tma_load_4d", loc);
#endif
}

/// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes (PTX ISA, "cp.async.bulk";
/// sm_90): copies `bytes`, a multiple of 16, from global memory to shared memory, both 16-byte
/// aligned, without a tensor map; they count at `barrier` in the phase that runs now. One thread
/// issues.
GPU_FN void bulk_load(void* shared, const void* global, std::uint32_t bytes, MBarrier& barrier,
                      [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
#else
  host::bulk_load(shared, global, bytes, barrier, loc);
#endif
}

#if GPU_ON_DEVICE
#undef GPU_TMA_LOAD
#endif

/// prefetch.tensormap (PTX ISA, "prefetch, prefetchu"; sm_90): fetches the map ahead of its first
/// use. Changes nothing but time.
GPU_FN void prefetch_tensor_map(const TensorMap& map, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  host::prefetch_tensor_map(map, loc);
#endif
}

}  // namespace GPU_BACKEND
}  // namespace gpu

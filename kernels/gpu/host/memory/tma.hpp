// TMA on the host executor: see gpu/tma.hpp.
#pragma once

#include <array>
#include <cstdint>

#include "gpu/host/executor/runtime.hpp"

namespace gpu {
struct MBarrier;
struct TensorMap;
}  // namespace gpu

namespace gpu::host {

/// One TMA instruction's operands.
struct TmaBox {
  void* shared;
  const TensorMap* map;
  std::array<int, 4> at;  ///< coordinates of the box's first element
  int rank;               ///< of the instruction
};

void tma_load(const TmaBox& box, MBarrier& barrier, const char* name, Location loc);
void bulk_load(void* shared, const void* global, std::uint32_t bytes, MBarrier& barrier,
               Location loc);
void prefetch_tensor_map(const TensorMap& map, Location loc);

/// PTX's shared state space does not start at 0, so that an offset taken for an address shows.
inline constexpr std::uint32_t kFirstSharedAddress = 1024;

/// `pointer` as PTX's shared state space has it; an error unless it is the block's shared memory.
std::uint32_t shared_address(const void* pointer, const char* name, Location loc);

/// Ends the kernel with an error unless a matrix descriptor can hold these numbers.
void check_matrix(const void* shared, int row_group_bytes, int k_chunk_bytes, int swizzle_bytes,
                  Location loc);

}  // namespace gpu::host

// How Hopper lays matrices out in shared memory: the swizzles of TMA, and the descriptors through
// which wgmma finds its operands. PTX ISA, "Tensors: swizzling modes" and "Asynchronous Warpgroup
// Level Matrix Multiply-Accumulate Instructions: matrix descriptor format".
#pragma once

#include <cstdint>

#include "gpu/backend.hpp"
#if GPU_ON_DEVICE
#include "gpu/cp_async.hpp"
#else
#include "gpu/host/memory/tma.hpp"
#endif

namespace gpu {

/// Which 16-byte chunks change places within 8 rows of this many bytes. A tile with swizzle w is
/// dense: rows of w bytes, row r of any 8 with its chunks' numbers XORed with r (128B), r / 2 (64B)
/// or r / 4 (32B). It starts at a multiple of 8 w bytes, 128 without a swizzle.
enum class Swizzle : std::uint8_t { kNone, k32B, k64B, k128B };

inline namespace GPU_BACKEND {

/// Bytes of a row of the swizzle's pattern; 16, one chunk, for kNone.
GPU_FN constexpr int swizzle_bytes(Swizzle swizzle) { return 16 << static_cast<int>(swizzle); }

/// Where the byte lies that would lie at `offset` without a swizzle; both count from an address
/// that is a multiple of 8 swizzle_bytes. Address bits 4 to 6 are XORed with bits 7 to 9.
GPU_FN constexpr std::uint32_t swizzled(std::uint32_t offset, Swizzle swizzle) {
  const auto chunks = static_cast<std::uint32_t>(swizzle_bytes(swizzle) / 16 - 1);
  return offset ^ ((offset >> 7 & chunks) << 4);
}

/// A matrix descriptor of a K-major operand (rows along M or N, contiguous in k; bytes have no
/// other). Its rows come in groups of 8, `row_group_bytes` from group to group. With a swizzle the
/// rows of a group are swizzle_bytes apart, and k_chunk_bytes is not used. Without one, a group is
/// a series of 8 x 16-byte blocks, dense, `k_chunk_bytes` from one to the next along k. All are
/// multiples of 16, below 2^18.
///
/// Of an N-major B (rows along k, contiguous in n: wgmma_m64k16) it is that of panels of
/// swizzle_bytes a row, with the swizzle of 128 bytes: `row_group_bytes` from 8 rows of k to the
/// next 8, `k_chunk_bytes` from panel to panel.
GPU_FN constexpr std::uint64_t encode_matrix_descriptor(std::uint32_t shared_address,
                                                        std::uint32_t row_group_bytes,
                                                        std::uint32_t k_chunk_bytes,
                                                        Swizzle swizzle) {
  constexpr std::uint32_t kMask = 0x3ffff;
  const auto code = static_cast<std::uint64_t>((4 - static_cast<int>(swizzle)) % 4);  // 128B: 1
  return std::uint64_t{(shared_address & kMask) >> 4} |
         std::uint64_t{(k_chunk_bytes & kMask) >> 4} << 16 |
         std::uint64_t{(row_group_bytes & kMask) >> 4} << 32 | code << 62;
}

/// The descriptor of a matrix that starts at `shared`, a multiple of 16 bytes in the first row of a
/// swizzle pattern.
GPU_FN std::uint64_t matrix_descriptor(const void* shared, int row_group_bytes, int k_chunk_bytes,
                                       Swizzle swizzle, [[maybe_unused]] Loc loc = GPU_LOC) {
#if GPU_ON_DEVICE
  const std::uint32_t address = shared_address(shared);
#else
  host::check_matrix(shared, row_group_bytes, k_chunk_bytes, swizzle_bytes(swizzle), loc);
  const std::uint32_t address = host::shared_address(shared, "matrix_descriptor", loc);
#endif
  return encode_matrix_descriptor(address, static_cast<std::uint32_t>(row_group_bytes),
                                  static_cast<std::uint32_t>(k_chunk_bytes), swizzle);
}

/// The descriptor of what starts `bytes`, a multiple of 16, behind a descriptor's start: 32 for the
/// next k-step within a swizzled row, a multiple of 8 swizzle_bytes for other rows.
GPU_FN constexpr std::uint64_t advance_descriptor(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<std::uint64_t>(bytes >> 4);
}

}  // namespace GPU_BACKEND
}  // namespace gpu

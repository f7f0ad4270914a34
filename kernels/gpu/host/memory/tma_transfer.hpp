// One TMA instruction in flight: its box, byte by byte.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/host/executor/raw_memory.hpp"
#include "gpu/host/executor/runtime.hpp"
#include "gpu/tensor_map.hpp"

namespace gpu::host {

struct MBarrierState;

/// 16 bytes of a box: where they lie, and which of them are inside the tensor.
struct BoxChunk {
  std::size_t shared_offset;  ///< from the start of shared memory
  const char* global;         ///< of byte 0, which may lie outside
  int first;                  ///< bytes first to last - 1 are inside
  int last;
};

struct TmaTransfer {
  TensorShape shape;
  std::array<int, kMaxTensorRank> at{};
  std::size_t shared_offset = 0;
  MBarrierState* barrier = nullptr;
  std::uint64_t phase = 0;  ///< of the barrier at the issue
  int thread = 0;           ///< that issued it
  const char* name = nullptr;
  Location loc;

  std::uint32_t box(int dimension) const {
    return dimension < shape.rank ? shape.box[dimension] : 1;
  }
  std::size_t row_bytes() const { return std::size_t{shape.box[0]} * shape.element_bytes; }
  std::size_t rows() const { return std::size_t{box(1)} * box(2) * box(3); }
  std::size_t bytes() const { return row_bytes() * rows(); }

  /// Whether this byte of shared memory is in the box.
  bool covers(std::size_t offset) const { return offset - shared_offset < bytes(); }

  /// Calls visit(BoxChunk) for every 16 bytes of the box, in the order before the swizzle.
  template <class Visit>
  void for_each_chunk(Visit visit) const {
    std::uint32_t offset = 0;
    std::array<std::uint32_t, kMaxTensorRank> i{};
    for (i[3] = 0; i[3] < box(3); ++i[3]) {
      for (i[2] = 0; i[2] < box(2); ++i[2]) {
        for (i[1] = 0; i[1] < box(1); ++i[1]) {
          visit_row(i, offset, visit);
          offset += static_cast<std::uint32_t>(row_bytes());
        }
      }
    }
  }

 private:
  /// The row with these indices in the box; i[0] is not read.
  template <class Visit>
  void visit_row(const std::array<std::uint32_t, kMaxTensorRank>& i, std::uint32_t offset,
                 Visit& visit) const {
    bool inside = true;
    std::int64_t from = std::int64_t{at[0]} * shape.element_bytes;
    for (int d = 1; d < shape.rank; ++d) {
      const std::int64_t index = std::int64_t{at[d]} + i[d];
      inside = inside && index >= 0 && index < static_cast<std::int64_t>(shape.sizes[d]);
      from += index * static_cast<std::int64_t>(shape.strides[d]);
    }
    const std::int64_t begin = -std::int64_t{at[0]} * shape.element_bytes;
    const std::int64_t end =
        begin + static_cast<std::int64_t>(shape.sizes[0]) * shape.element_bytes;
    const char* base = static_cast<const char*>(shape.base);
    for (std::int64_t x = 0; x < static_cast<std::int64_t>(row_bytes()); x += kChunkBytes) {
      const auto clamp = [x](std::int64_t edge) {
        return static_cast<int>(std::clamp<std::int64_t>(edge - x, 0, kChunkBytes));
      };
      const auto in_box = swizzled(offset + static_cast<std::uint32_t>(x), shape.swizzle);
      visit(BoxChunk{.shared_offset = shared_offset + in_box,
                     .global = base + (from + x),
                     .first = inside ? clamp(begin) : 0,
                     .last = inside ? clamp(end) : 0});
    }
  }
};

/// Reads the global memory of a transfer, while its caller is on the stack: AddressSanitizer then
/// names the line that issued it.
void touch(const TmaTransfer& transfer);

/// "tma_load_2d that thread 0 issued at kernel.cuh:31"
std::string describe(const TmaTransfer& transfer);

}  // namespace gpu::host

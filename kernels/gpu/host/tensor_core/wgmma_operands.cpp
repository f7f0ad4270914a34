// Operands of wgmma in shared memory: what a matrix descriptor describes.
#include <string>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/memory/async_units.hpp"
#include "gpu/host/memory/tma.hpp"
#include "gpu/host/tensor_core/wgmma_unit.hpp"

namespace gpu::host {
namespace {

constexpr std::uint32_t kRowsPerGroup = 8;
constexpr std::uint32_t kChunk = kChunkBytes;

/// A matrix descriptor taken apart (PTX ISA, "matrix descriptor format").
struct Layout {
  std::uint32_t start;
  std::uint32_t k_chunk_bytes;
  std::uint32_t row_group_bytes;
  Swizzle swizzle;

  explicit Layout(std::uint64_t descriptor)
      : start(field(descriptor, 0)),
        k_chunk_bytes(field(descriptor, 16)),
        row_group_bytes(field(descriptor, 32)),
        swizzle(static_cast<Swizzle>((4 - (descriptor >> 62)) % 4)) {}

  /// The address of 16 bytes of a row.
  std::uint32_t address(std::uint32_t row, std::uint32_t k_chunk) const {
    const auto pitch = static_cast<std::uint32_t>(swizzle_bytes(swizzle));
    const std::uint32_t along_k = swizzle == Swizzle::kNone ? k_chunk_bytes : kChunk;
    const std::uint32_t linear = start + row % kRowsPerGroup * pitch +
                                 row / kRowsPerGroup * row_group_bytes + k_chunk * along_k;
    return swizzled(linear, swizzle);
  }
  /// The same of a row of k of an N-major matrix, in panels of 128 bytes.
  std::uint32_t n_major_address(std::uint32_t row, std::uint32_t n_chunk) const {
    constexpr std::uint32_t kPitch = 128;
    constexpr std::uint32_t kChunksOfPanel = kPitch / kChunk;
    const std::uint32_t linear =
        start + row % kRowsPerGroup * kPitch + row / kRowsPerGroup * row_group_bytes +
        n_chunk / kChunksOfPanel * k_chunk_bytes + n_chunk % kChunksOfPanel * kChunk;
    return swizzled(linear, swizzle);
  }

 private:
  static std::uint32_t field(std::uint64_t descriptor, int bit) {
    constexpr std::uint64_t kBits = 0x3fff;
    return static_cast<std::uint32_t>(descriptor >> bit & kBits) * kChunk;
  }
};

/// Reads chunks of an operand. An error unless they are inside, at rest, and known to the async
/// proxy.
struct Reader {
  Block& block;
  const Fiber& me;
  std::string of;
  SharedRows rows;

  Reader(Block& b, const Fiber& fiber, const char* what, int chunks)
      : block(b), me(fiber), of(std::string("matrix ") + what) {
    rows.offsets.reserve(static_cast<std::size_t>(chunks));
    rows.bytes.reserve(rows.offsets.capacity());
  }

  void read(std::size_t address, std::uint32_t row) {
    SharedMemory& shared = block.shared();
    const std::size_t offset = address - kFirstSharedAddress;
    if (address < kFirstSharedAddress || offset + kChunk > shared.size()) {
      fail(me, me.at, of + " is not inside the block's shared memory: row " + std::to_string(row));
    }
    const Chunk chunk = shared.load(offset);
    if (chunk != shared.async_load(offset)) {
      fail(me, me.at,
           of +
               " is in shared memory that ordinary stores wrote with no fence_proxy_async after "
               "them: row " +
               std::to_string(row));
    }
    if (const TmaTransfer* load = block.async().load_at(offset); load != nullptr) {
      fail(me, me.at, of + " is the destination of the " + describe(*load) + ", still in flight");
    }
    rows.offsets.push_back(offset);
    rows.bytes.push_back(chunk);
  }
};

}  // namespace

void check_matrix(const void* shared, int row_group_bytes, int k_chunk_bytes, int swizzle_bytes,
                  Location loc) {
  constexpr const char* kName = "matrix_descriptor";
  constexpr int kLimit = 1 << 18;
  for (const int stride : {row_group_bytes, k_chunk_bytes}) {
    if (stride < 0 || stride >= kLimit || stride % static_cast<int>(kChunk) != 0) {
      fail_operand(kName, "a stride is not a multiple of 16 below 2^18", loc);
    }
  }
  const std::uint32_t address = shared_address(shared, kName, loc);
  if (address % kChunk != 0) {
    fail_operand(kName, "the matrix does not start at a multiple of 16 bytes", loc);
  }
  const auto pitch = static_cast<std::uint32_t>(swizzle_bytes);
  if (pitch > kChunk && address % (kRowsPerGroup * pitch) >= pitch) {
    fail_operand(kName, "the matrix does not start in the first row of a swizzle pattern", loc);
  }
}

SharedRows read_rows(Block& block, const Fiber& me, std::uint64_t descriptor, int first, int count,
                     const char* what) {
  const Layout layout(descriptor);
  Reader reader(block, me, what, count * kChunksPerRow);
  for (int i = 0; i < count * kChunksPerRow; ++i) {
    const auto row = static_cast<std::uint32_t>(first + i / kChunksPerRow);
    reader.read(layout.address(row, static_cast<std::uint32_t>(i % kChunksPerRow)), row);
  }
  return reader.rows;
}

SharedRows read_n_major(Block& block, const Fiber& me, std::uint64_t descriptor, int n) {
  const Layout layout(descriptor);
  if (layout.swizzle != Swizzle::k128B) {
    fail(me, me.at, "matrix B is N-major and not of panels with the swizzle of 128 bytes");
  }
  const int chunks = n / kElementsOfChunk;
  Reader reader(block, me, "B", kWgmma16BitDepth * chunks);
  for (int i = 0; i < kWgmma16BitDepth * chunks; ++i) {
    const auto row = static_cast<std::uint32_t>(i / chunks);
    reader.read(layout.n_major_address(row, static_cast<std::uint32_t>(i % chunks)), row);
  }
  return reader.rows;
}

bool unchanged(Block& block, const SharedRows& rows) {
  for (std::size_t i = 0; i < rows.offsets.size(); ++i) {
    if (block.shared().load(rows.offsets[i]) != rows.bytes[i]) return false;
  }
  return true;
}

}  // namespace gpu::host

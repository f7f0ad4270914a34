// What TMA asks of a tensor: CUDA Driver API, cuTensorMapEncodeTiled.
#include "gpu/tensor_map.hpp"

#include <string>

namespace gpu {
namespace {

constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxBox = 256;
constexpr std::uint64_t kAlignment = 16;
constexpr int kAddressBits = 62;  // no memory is there, nor near it

fp8_sdpa::Status wrong(const std::string& what) {
  return fp8_sdpa::invalid_argument("tensor map: " + what);
}

fp8_sdpa::Status check_dimension(const TensorShape& shape, int i) {
  const auto name = [&] { return "dimension " + std::to_string(i); };
  if (shape.sizes[i] < 1 || shape.sizes[i] > kMaxSize) {
    return wrong(name() + " has " + std::to_string(shape.sizes[i]) + " elements: 1 to 2^32");
  }
  if (shape.box[i] < 1 || shape.box[i] > kMaxBox) {
    return wrong(name() + " of the box has " + std::to_string(shape.box[i]) +
                 " elements: 1 to 256");
  }
  if (i > 0 && (shape.strides[i] % kAlignment != 0 || shape.strides[i] >= kMaxStride)) {
    return wrong(name() + " has a stride of " + std::to_string(shape.strides[i]) +
                 " bytes: a multiple of 16 below 2^40");
  }
  return {};
}

}  // namespace

fp8_sdpa::Status check_tensor_shape(const TensorShape& shape) {
  if (shape.base == nullptr || reinterpret_cast<std::uintptr_t>(shape.base) % kAlignment != 0) {
    return wrong("the tensor's address is null or not a multiple of 16 bytes");
  }
  if (reinterpret_cast<std::uintptr_t>(shape.base) >> kAddressBits != 0) {
    return wrong("the tensor's address is one that no memory has: 2^62 or more");
  }
  if (shape.element_bytes != 1 && shape.element_bytes != 2 && shape.element_bytes != 4) {
    return wrong("elements of " + std::to_string(shape.element_bytes) + " bytes: 1, 2 or 4");
  }
  if (shape.rank < 2 || shape.rank > kMaxTensorRank) {
    return wrong("rank " + std::to_string(shape.rank) + ": 2 to 4");
  }
  for (int i = 0; i < shape.rank; ++i) {
    if (auto status = check_dimension(shape, i); !status.ok()) return status;
  }
  const std::uint64_t row = std::uint64_t{shape.box[0]} * shape.element_bytes;
  if (row % kAlignment != 0) {
    return wrong("a row of the box has " + std::to_string(row) + " bytes: a multiple of 16");
  }
  if (shape.swizzle != Swizzle::kNone) {
    const auto span = std::uint64_t{16} << static_cast<int>(shape.swizzle);
    if (row > span) {
      return wrong("a row of the box has " + std::to_string(row) + " bytes, the swizzle spans " +
                   std::to_string(span));
    }
  }
  return {};
}

}  // namespace gpu

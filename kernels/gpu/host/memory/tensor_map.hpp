// Tensor maps on the host executor: the shape itself, in the bytes of a gpu::TensorMap.
#pragma once

namespace gpu {
struct TensorMap;
struct TensorShape;
}  // namespace gpu

namespace gpu::host {

void encode_tensor_map(const TensorShape& shape, TensorMap& map);

}  // namespace gpu::host

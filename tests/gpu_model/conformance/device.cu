// The conformance kernels on the current CUDA device.
#include <memory>

#include "gpu/cuda_check.hpp"
#include "tests/gpu_model/conformance/kernels.cuh"

namespace conformance {
namespace {

struct CudaFree {
  void operator()(void* pointer) const { static_cast<void>(cudaFree(pointer)); }
};
using DeviceBuffer = std::unique_ptr<void, CudaFree>;

fp8_sdpa::Status allocate(std::size_t bytes, DeviceBuffer& buffer) {
  void* pointer = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMalloc(&pointer, bytes == 0 ? 1 : bytes));
  buffer.reset(pointer);
  return {};
}

}  // namespace

fp8_sdpa::Status run_on_device(const Request& request) {
  DeviceBuffer in;
  DeviceBuffer out;
  if (auto status = allocate(request.in.size(), in); !status.ok()) return status;
  if (auto status = allocate(request.out.size(), out); !status.ok()) return status;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(in.get(), request.in.data(), request.in.size(), cudaMemcpyHostToDevice));
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaMemset(out.get(), 0xff, request.out.size()));
  if (auto status = launch(request.primitive, {in.get(), out.get(), request.count}, {});
      !status.ok()) {
    return status;
  }
  FP8_SDPA_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(request.out.data(), out.get(), request.out.size(), cudaMemcpyDeviceToHost));
  return {};
}

std::string why_no_device() {
  int count = 0;
  const auto status = FP8_SDPA_CUDA_STATUS(cudaGetDeviceCount(&count));
  if (!status.ok()) return "no usable CUDA device: " + status.message();
  return count > 0 ? "" : "no usable CUDA device: the driver finds none";
}

}  // namespace conformance

#include <cuda_runtime.h>

#include <atomic>
#include <utility>

#include "benchmarks/measure/hold.hpp"
#include "gpu/cuda_check.hpp"

namespace fp8_sdpa::bench {

/// In mapped host memory. Each hold has a ticket, so that no old release lets a new hold go.
struct Hold::Words {
  std::uint32_t released;  ///< the host writes it: the ticket of the last release
  std::uint32_t held;      ///< the device writes it: the ticket of the last hold that was released
};

namespace {

/// PTX ISA, "Special Registers: %globaltimer": nanoseconds.
__device__ std::uint64_t global_timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void hold_stream(const volatile std::uint32_t* released, volatile std::uint32_t* held,
                            std::uint32_t ticket, std::uint64_t limit_ns) {
  const bool in_time =
      wait_released([&] { return *released == ticket; }, global_timer_ns, limit_ns);
  if (in_time) *held = ticket;
  __threadfence_system();
}

}  // namespace

void Hold::FreeWords::operator()(Words* words) const { static_cast<void>(cudaFreeHost(words)); }

Hold::Hold(Words* words) : words_(words) {}
Hold::Hold(Hold&&) noexcept = default;
Hold& Hold::operator=(Hold&&) noexcept = default;
Hold::~Hold() = default;

Result<Hold> Hold::make() {
  Words* words = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaHostAlloc(reinterpret_cast<void**>(&words), sizeof(Words), cudaHostAllocMapped));
  *words = {0, 0};
  return Hold(words);
}

Status Hold::hold(CUstream_st* stream) {
  Words* on_device = nullptr;
  FP8_SDPA_RETURN_IF_CUDA_ERROR(
      cudaHostGetDevicePointer(reinterpret_cast<void**>(&on_device), words_.get(), 0));
  ++ticket_;
  hold_stream<<<1, 1, 0, stream>>>(&on_device->released, &on_device->held, ticket_, kLongestHoldNs);
  return FP8_SDPA_CUDA_STATUS(cudaGetLastError());
}

void Hold::release() {
  std::atomic_ref<std::uint32_t>(words_->released).store(ticket_, std::memory_order_seq_cst);
}

bool Hold::was_held() const {
  return std::atomic_ref<std::uint32_t>(words_->held).load(std::memory_order_seq_cst) == ticket_;
}

}  // namespace fp8_sdpa::bench
